"""The compiled kernels in tests: some need them, others must hold without them."""

from contextlib import contextmanager

import pytest

try:
    from slimbayes._fast import library
except ImportError:  # the folder may be deleted
    library = None

status = "not there: slimbayes._fast is deleted" if library is None else library.status()
needs_kernels = pytest.mark.skipif(status != "used", reason=f"compiled kernels: {status}")


@contextmanager
def without_kernels():
    """Let torch's operations do everything."""
    with pytest.MonkeyPatch.context() as patch:
        if library is not None:
            patch.setattr(library, "_library", lambda: ({}, "not used: a test does without"))
        yield
