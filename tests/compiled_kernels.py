"""The compiled kernels in tests: some need them, others must hold without them."""

import ctypes
from contextlib import contextmanager

import pytest

from slimbayes.native import library, status

needs_kernels = pytest.mark.skipif(status() != "used", reason=f"compiled kernels: {status()}")


@contextmanager
def without_kernels():
    """Let torch's operations do everything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "_library", lambda: ({}, "not used: a test does without"))
        yield


def _handle():
    return ctypes.CDLL(str(next(library.FOLDER.glob("kernels*.so"))))


def product_versions():
    """Return the versions of products that this machine can run, as parameters of tests."""
    known = 0
    if status() == "used" and hasattr(_handle(), "products_known"):
        known = _handle().products_known()
    reason = "no products for this processor, or none compiled"
    return [pytest.param(version, marks=pytest.mark.skipif(known < version, reason=reason)) for version in (3, 4)]


@contextmanager
def with_products(version):
    """Let products be the kernels of a version, whether or not they are the quickest here."""
    handle = _handle()
    kernels, said = library._library()
    with pytest.MonkeyPatch.context() as patch:
        found = {**kernels, **library.products(handle, version)}
        patch.setattr(library, "_library", lambda: (found, said))
        try:
            yield
        finally:
            handle.products_use(handle.products_known() if handle.products_quicker() else 0)


@contextmanager
def without_products():
    """Let torch multiply and convolve, between passes that are compiled."""
    kernels, said = library._library()
    with pytest.MonkeyPatch.context() as patch:
        found = {key: run for key, run in kernels.items() if key[0] not in library.PRODUCTS}
        patch.setattr(library, "_library", lambda: (found, said))
        yield
