"""The compiled kernels: found, checked and called through ctypes; where there are none, torch's operations serve."""

import ctypes
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

__all__ = ["addresses", "has_products", "integers", "kernel", "named_in_profiles", "source_hash", "status"]

FOLDER = Path(__file__).parent
#: Set to 1, this leaves the library alone; set to "products", its products of matrices and convolutions.
SWITCH = "SLIMBAYES_NO_NATIVE"

POINTER, INTEGER, REAL = ctypes.c_void_p, ctypes.c_long, ctypes.c_double
SIDE = (POINTER, POINTER, INTEGER, POINTER, *[INTEGER] * 6)
#: Arguments and result of each kernel, as the sources have them.
KERNELS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "scale": ((POINTER, *SIDE, POINTER, INTEGER, POINTER), None),
    "scale_back": ((POINTER, POINTER, *SIDE, *[POINTER] * 5, INTEGER, REAL), INTEGER),
    "rectified_back": ((*[POINTER] * 3, *SIDE, *[POINTER] * 4, INTEGER, REAL, REAL, POINTER), INTEGER),
    "weight_back": ((*[POINTER] * 7, INTEGER, INTEGER, ctypes.c_int), None),
    "deviations": ((*[POINTER] * 4, *[INTEGER] * 3, POINTER, POINTER), None),
    "deviations_back": ((*[POINTER] * 6, *[INTEGER] * 3), None),
    "normal_kl": ((*[POINTER] * 3, INTEGER, REAL, REAL, POINTER, POINTER), REAL),
    "tied_sum": ((POINTER, POINTER, INTEGER, INTEGER, *[REAL] * 3, POINTER, POINTER), REAL),
}
#: The same of those that not every compiler and processor can have.
PRODUCTS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "product": ((POINTER, POINTER, ctypes.c_int, *[INTEGER] * 3, POINTER, POINTER), None),
    "turned_product": ((POINTER, POINTER, *[INTEGER] * 3, POINTER, POINTER), None),
    "scaled_conv": ((POINTER, POINTER, *SIDE, *SIDE, POINTER, INTEGER, INTEGER, *[POINTER] * 3), None),
    "groups_back": ((*[POINTER] * 5, *[INTEGER] * 4, *[POINTER] * 4), None),
}
TYPES = {torch.float32: "float", torch.float64: "double"}


def source_hash() -> str:
    """Return a hash of the sources, which a library tells of those that it was compiled from."""
    sources = sorted([*FOLDER.glob("*.c"), *FOLDER.glob("*.inc")])  # as in hatch_build.py
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]


@lru_cache(1)
def _library() -> tuple[dict[tuple[str, torch.dtype], Any], str]:
    """Return the kernels by name and type, and what there is to say about them."""
    switch = os.environ.get(SWITCH, "0")
    if switch not in ("", "0", "products"):
        return {}, f"not used: {SWITCH} is set"
    path = next(FOLDER.glob("kernels*.so"), None)
    if path is None:
        return {}, "not there: no C compiler was found when slimbayes was installed"
    try:
        library = ctypes.CDLL(str(path))
        library.slimbayes_source.restype = ctypes.c_char_p
        found = library.slimbayes_source().decode()
    except (OSError, AttributeError) as error:
        return {}, f"not used: {path.name} cannot be loaded ({error})"
    if found != source_hash():
        return {}, f"not used: {path.name} was compiled from other sources; install slimbayes again"
    library.signs.argtypes, library.signs.restype = (POINTER, POINTER, INTEGER), None
    kernels = {("signs", torch.int8): library.signs, **_declared(library, KERNELS)}
    if switch != "products" and hasattr(library, "products_quicker") and library.products_quicker():
        kernels.update(products(library, library.products_known()))
    return kernels, "used"


def products(library: ctypes.CDLL, version: int) -> dict[tuple[str, torch.dtype], Any]:
    """Return products of matrices in the version for x86-64-v3 or v4, which all of them have from then on."""
    library.products_use(version)
    return _declared(library, PRODUCTS)


def _declared(library: ctypes.CDLL, kernels: dict[str, tuple[tuple[Any, ...], Any]]) -> dict[Any, Any]:
    found = {}
    for name, (arguments, result) in kernels.items():
        for dtype, suffix in TYPES.items():
            function = getattr(library, f"{name}_{suffix}")
            function.argtypes, function.restype = arguments, result
            found[name, dtype] = function
    return found


def kernel(name: str, dtype: torch.dtype) -> Any:
    """Return a compiled kernel, or None.

    Example:
        >>> kernel("scale", torch.int64) is None
        True
    """
    return _library()[0].get((name, dtype))


@contextmanager
def named_in_profiles() -> Iterator[None]:
    """Let torch's profiler see kernels, as ``slimbayes::scale`` and so on; outside, a call does not ask for it."""
    kernels = _library()[0]
    unnamed = dict(kernels)

    def named(name: str, run: Any) -> Any:
        def call(*arguments: Any) -> Any:
            with torch.profiler.record_function(f"slimbayes::{name}"):
                return run(*arguments)

        return call

    kernels.update({key: named(key[0], run) for key, run in unnamed.items()})
    try:
        yield
    finally:
        kernels.update(unnamed)


def addresses(tensors: Sequence[torch.Tensor | None]) -> Any:
    """Return an array of where tensors lie, for a kernel that takes several."""
    return (POINTER * len(tensors))(*(None if one is None else one.data_ptr() for one in tensors))


def integers(numbers: Sequence[int]) -> Any:
    """Return an array of numbers."""
    return (INTEGER * len(numbers))(*numbers)


def has_products() -> bool:
    """Return whether the kernels have products of matrices and convolutions that are quicker here than torch's."""
    return kernel("product", torch.float32) is not None


def status() -> str:
    """Return whether the compiled kernels are used, and if not, why.

    Example:
        >>> status().split(":")[0] in ("used", "not used", "not there")
        True
    """
    return _library()[1]
