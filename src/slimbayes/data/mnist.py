"""MNIST and Fashion-MNIST, from the publishers' IDX files."""

import gzip
import math
import os
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slimbayes._checks import check_choice
from slimbayes.data.sources import missing

__all__ = ["Mnist", "load_idx", "load_mnist"]

#: The third byte of an IDX file; numbers of several bytes have the highest first.
_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}

_NAMES = [f"{split}-{part}-ubyte" for split in ("train", "t10k") for part in ("images-idx3", "labels-idx1")]

#: Where below a data folder the files of each set may be: as published, and as torchvision keeps them.
_SUB_FOLDERS = {
    "MNIST": ("mnist", "MNIST/raw"),
    "Fashion-MNIST": ("fashion-mnist", "FashionMNIST/raw"),
}


class Mnist(NamedTuple):
    """The two splits in the publisher's order; images from 0 (background) to 255.

    Attributes:
        train_images: ``(60000, 28, 28)``, uint8.
        train_labels: ``(60000,)``, uint8.
        test_images: ``(10000, 28, 28)``, uint8.
        test_labels: ``(10000,)``, uint8.
    """

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]


def load_idx(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Return the array in an IDX file, gzipped or not, in this machine's byte order.

    Args:
        path: The file, of any of the format's six number types.

    Raises:
        ValueError: The file is not IDX, or is shorter or longer than its header says.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "labels-idx1-ubyte"
        ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 0, 4]))
        ...     load_idx(path)
        array([5, 0, 4], dtype=uint8)
    """
    content = _content(Path(path))
    if len(content) < 4:
        raise ValueError(f"{path} is not an IDX file: it has {len(content)} bytes, fewer than the magic number.")
    if content[:2] != b"\0\0" or content[2] not in _DTYPES:
        raise ValueError(
            f"{path} is not an IDX file: its magic number is {content[:4].hex(' ')}, but should be 00 00, "
            f"one of {', '.join(f'{code:02x}' for code in _DTYPES)}, and the number of dimensions."
        )
    dtype, dimensions = np.dtype(_DTYPES[content[2]]), content[3]
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise ValueError(
            f"{path} is truncated: the header of {dimensions} dimensions needs {start} bytes, but the "
            f"file has {len(content)}."
        )
    shape = tuple(np.frombuffer(content, ">u4", dimensions, 4).tolist())
    expected = start + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        fault = "is truncated" if len(content) < expected else "is too long"
        raise ValueError(
            f"{path} {fault}: shape {shape} of {dtype.name} needs {expected} bytes, but the file has {len(content)}."
        )
    return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def load_mnist(folder: str | os.PathLike[str], kind: str = "MNIST") -> Mnist:
    """Return MNIST or Fashion-MNIST.

    Args:
        folder: Holds the four files (``train-images-idx3-ubyte`` and so on, with or without ``.gz``), itself or
            in a sub-folder: ``mnist`` or ``fashion-mnist``, or torchvision's ``MNIST/raw`` or ``FashionMNIST/raw``.
            Both sets have files of the same names: where the folder itself holds them, they are taken for what ``kind``
            says.
        kind: ``"MNIST"`` or ``"Fashion-MNIST"``.

    Raises:
        MissingData: A file is missing; a ``FileNotFoundError``.
        ValueError: A file is broken, or images and labels do not belong together.

    Example:
        >>> load_mnist("no-such-folder")
        Traceback (most recent call last):
            ...
        slimbayes.data.folders.MissingData: Found no train-images-idx3-ubyte, with or without .gz, ...
    """
    check_choice("kind", kind, _SUB_FOLDERS)
    files = _files(Path(folder), kind)
    data = Mnist(*map(load_idx, files))
    _check_split(files[0], data.train_images, files[1], data.train_labels)
    _check_split(files[2], data.test_images, files[3], data.test_labels)
    return data


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    if content[:2] != b"\x1f\x8b":  # told by content, since browsers unpack files and keep their names
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is truncated or damaged: {error}. Fetch it again.") from error


def _files(root: Path, kind: str) -> list[Path]:
    """Return the four files, all of one folder: those of another set have the same names."""
    places = [*(root / sub for sub in _SUB_FOLDERS[kind]), root]
    found = [[_with_or_without_gz(place / name) for name in _NAMES] for place in places]
    fullest = max(found, key=lambda paths: sum(path.is_file() for path in paths))
    for name, path in zip(_NAMES, fullest, strict=True):
        if not path.is_file():
            raise missing(
                kind.lower().replace("-", "_"),
                f"{name}, with or without .gz, of the four files of {kind} in {root} or its sub-folders "
                f"{' and '.join(_SUB_FOLDERS[kind])}",
            )
    return fullest


def _with_or_without_gz(path: Path) -> Path:
    return path if path.is_file() else path.with_name(f"{path.name}.gz")


def _check_split(image_file: Path, images: NDArray[Any], label_file: Path, labels: NDArray[Any]) -> None:
    for path, array, dimensions in ((image_file, images, 3), (label_file, labels, 1)):
        if array.ndim != dimensions or array.dtype != np.uint8:
            raise ValueError(
                f"{path} should hold uint8 of {dimensions} dimensions, but holds {array.dtype} of shape {array.shape}."
            )
    if len(images) != len(labels):
        raise ValueError(f"{image_file} holds {len(images)} images, but {label_file} {len(labels)} labels.")
