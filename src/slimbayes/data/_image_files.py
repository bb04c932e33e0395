"""Image files: found, decoded, and brought to one size."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slimbayes._checks import check_count, check_number
from slimbayes.data.dataset import Batch

#: What counts as an image file.
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_MODES = {1: "L", 3: "RGB"}


@dataclass(frozen=True)
class ImageFiles:
    """Labelled image files, decoded when they are fetched.

    Args:
        folder: Holds the files.
        names: Of the files, relative to the folder.
        targets: ``(n,)``, int64: the class of each file.
        size: Height and width.
        channels: 1 for grey, 3 for colour.
        zoom: Files are resized so that they cover ``zoom`` times the size, then cropped at the centre.

    Shape:
        - Inputs that ``fetch`` returns: ``(rows, channels, height, width)``, uint8.

    Example:
        >>> files = ImageFiles(Path("photos"), ["cat/1.jpg", "dog/1.jpg"], torch.tensor([0, 1]), (224, 224))
        >>> len(files), files.path(1).name
        (2, '1.jpg')
    """

    folder: Path
    names: Sequence[str] | NDArray[np.bytes_]
    targets: Tensor
    size: tuple[int, int]
    channels: int = 3
    zoom: float = 1.0

    def __post_init__(self) -> None:
        _check(self.channels, self.zoom)
        if len(self.names) != len(self.targets):
            raise ValueError(f"Expected as many names as targets, but got {len(self.names)} and {len(self.targets)}.")
        if not isinstance(self.names, np.ndarray):
            # One array: a list of a million strings would be copied, page by page, into every worker that reads it.
            encoded = np.array([os.fsencode(name) for name in self.names], dtype=np.bytes_)
            object.__setattr__(self, "names", encoded)

    def __len__(self) -> int:
        return len(self.targets)

    def path(self, row: int) -> Path:
        """Return a row's file."""
        return self.folder / os.fsdecode(self.names[row])

    def fetch(self, rows: Tensor) -> Batch:
        """Decode the images of these rows."""
        images = [decode_image(self.path(row), self.size, self.channels, self.zoom) for row in rows.tolist()]
        empty = torch.empty((0, self.channels, *self.size), dtype=torch.uint8)
        return (torch.stack(images) if images else empty,), self.targets[rows]


def find_images(folder: Path) -> list[str]:
    """Return the image files below a folder, relative to it and sorted; hidden ones do not count.

    Example:
        >>> find_images(Path("no-such-folder"))
        []
    """
    names = []
    for place, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inside = Path(place).relative_to(folder)
        images = (name for name in files if name.lower().endswith(SUFFIXES) and not name.startswith("."))
        names += [(inside / name).as_posix() for name in images]
    return sorted(names)


def decode_image(path: Path, size: Sequence[int], channels: int = 3, zoom: float = 1.0) -> Tensor:
    """Return an image file as a tensor: resized in proportion (bicubic) to cover a box, cropped at the centre.

    Args:
        path: Of any format that pillow reads.
        size: Height and width of the result.
        channels: 1 for grey, 3 for colour.
        zoom: Of the box: its sides are ``zoom`` times the size. ImageNet's custom is 256/224.

    Shape:
        - Result: ``(channels, height, width)``, uint8.

    Raises:
        ValueError: The file is broken, or has more than 8 bits for each value.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "a.pgm").write_bytes(b"P5 2 2 255 " + bytes([1, 2, 3, 4]))
        ...     decode_image(Path(folder) / "a.pgm", (2, 2), channels=1)
        tensor([[[1, 2],
                 [3, 4]]], dtype=torch.uint8)
    """
    _check(channels, zoom)
    with _opened(path) as file:
        deep = file.mode.startswith(("I", "F"))
        # Transparent palettes go through RGBA, or pillow warns.
        image = file.convert("RGBA") if "transparency" in file.info and not deep else file
        image = image.convert(_MODES[channels])
    from PIL import Image

    if deep:
        raise ValueError(f"{path} has more than 8 bits for each value. Save it with 8 bits.")
    height, width = size
    scale = max(height * zoom / image.height, width * zoom / image.width)
    across, down = min(width / scale, image.width), min(height / scale, image.height)
    left, top = (image.width - across) / 2, (image.height - down) / 2
    box = (left, top, left + across, top + down)
    pixels = np.array(image.resize((width, height), Image.Resampling.BICUBIC, box=box))
    return torch.from_numpy(pixels).view(height, width, channels).permute(2, 0, 1).contiguous()


def image_size(path: Path) -> tuple[int, int]:
    """Return the height and width of an image file, of which only the beginning is read.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "a.pgm").write_bytes(b"P5 2 1 255 " + bytes([1, 2]))
        ...     image_size(Path(folder) / "a.pgm")
        (1, 2)
    """
    with _opened(path) as file:
        return file.height, file.width


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError('Image files need pillow: pip install "slimbayes[train]"') from error
    try:
        with Image.open(path) as file:
            yield file
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} is not a readable image: {error}. Replace or remove it.") from error


def height_and_width(size: int | Sequence[int]) -> tuple[int, int]:
    """Return both sides of a size given as one number or two.

    Example:
        >>> height_and_width(32), height_and_width([28, 20])
        ((32, 32), (28, 20))
    """
    sides = (size, size) if isinstance(size, int) else tuple(size)
    if len(sides) != 2:
        raise ValueError(f"Expected argument `size` to be one number, or height and width, but got {size!r}.")
    for side in sides:
        check_count("size", side)
    return sides[0], sides[1]


def _check(channels: int, zoom: float) -> None:
    if channels not in _MODES:
        raise ValueError(f"Expected argument `channels` to be 1 (grey) or 3 (colour), but got {channels!r}.")
    check_number("zoom", zoom, 1, or_low=True)
