"""The compiled kernels in tests: some need them, others must hold without them."""

from contextlib import contextmanager

import pytest

from slimbayes._fast import library
from slimbayes._fast.library import status

needs_kernels = pytest.mark.skipif(status() != "used", reason=f"compiled kernels: {status()}")


@contextmanager
def without_kernels():
    """Let torch's operations do everything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "_library", lambda: ({}, "not used: a test does without"))
        yield
