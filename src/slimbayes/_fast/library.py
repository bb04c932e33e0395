"""The compiled kernels, called through ctypes. Where there are none, the plain operations serve.

The library is compiled on installation (hatch_build.py), which writes its hash and that of its sources beside it. A
file of another hash is not loaded.
"""

import ctypes
import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

FOLDER = Path(__file__).parent / "native"
LIBRARY, HASHES = "kernels.so", "kernels.json"

POINTER, INTEGER = ctypes.c_void_p, ctypes.c_long
#: loc, deviation, bits of the signs; members, draws, rows of a draw, positions, channels, planes.
ROWS = (*[POINTER] * 3, *[INTEGER] * 6)
#: The arguments of each kernel, as native/rows.inc has them.
KERNELS: dict[str, tuple[Any, ...]] = {
    "scale": (POINTER, *ROWS, POINTER, INTEGER, POINTER),
    "scale_back": (POINTER, POINTER, *ROWS, *[POINTER] * 4, INTEGER),
}
TYPES = {torch.float32: "float", torch.float64: "double", torch.bfloat16: "bfloat16"}


def source_hash(folder: Path = FOLDER) -> str:
    """Return a hash of the C sources."""
    sources = sorted([*folder.glob("*.c"), *folder.glob("*.inc")])
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


@lru_cache(1)
def _library() -> tuple[dict[tuple[str, torch.dtype], Any], str]:
    """Return the kernels by name and type, and what there is to say about them."""
    path, hashes = FOLDER / LIBRARY, FOLDER / HASHES
    if not path.exists() or not hashes.exists():
        return {}, "not there: no C compiler was found when slimbayes was installed"
    expected = json.loads(hashes.read_text())
    if hashlib.sha256(path.read_bytes()).hexdigest() != expected["library"]:
        return {}, f"not used: {LIBRARY} is not the file that was installed; install slimbayes again"
    if source_hash() != expected["sources"]:
        return {}, f"not used: {LIBRARY} was compiled from other sources; install slimbayes again"
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        return {}, f"not used: {LIBRARY} cannot be loaded ({error})"
    found = {}
    for name, arguments in KERNELS.items():
        for dtype, suffix in TYPES.items():
            function = getattr(library, f"{name}_{suffix}")
            function.argtypes, function.restype = arguments, None
            found[name, dtype] = function
    return found, "used"


def kernel(name: str, dtype: torch.dtype) -> Any:
    """Return a compiled kernel, or None.

    Example:
        >>> kernel("scale", torch.int64) is None
        True
    """
    return _library()[0].get((name, dtype))


def status() -> str:
    """Return whether the compiled kernels are used, and if not, why.

    Example:
        >>> status().split(":")[0] in ("used", "not used", "not there")
        True
    """
    return _library()[1]
