"""What is there for speed alone, in tests: some need it, others must hold without it."""

from contextlib import contextmanager

import pytest

from slimbayes.layers import base

try:
    from slimbayes._fast import library
except ImportError:  # the folder may be deleted
    library = None

status = "not there: slimbayes._fast is deleted" if library is None else library.status()
#: Whether layers ask ``slimbayes._fast``: it may be deleted, or switched off.
with_fast = base._find_fast() is not None
needs_kernels = pytest.mark.skipif(status != "used", reason=f"compiled kernels: {status}")


@contextmanager
def without_kernels():
    """Let torch's operations do everything."""
    with pytest.MonkeyPatch.context() as patch:
        if library is not None:
            patch.setattr(library, "_library", lambda: ({}, "not used: a test does without"))
        yield
