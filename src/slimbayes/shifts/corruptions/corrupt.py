"""The corruptions by name, and corrupting a batch of images: each image by random numbers of its own."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slimbayes._checks import check_choice, check_count
from slimbayes.shifts.corruptions._ops import Corruption, Images
from slimbayes.shifts.corruptions.blur import DEFOCUS_BLUR, GAUSSIAN_BLUR, GLASS_BLUR, MOTION_BLUR, ZOOM_BLUR
from slimbayes.shifts.corruptions.digital import (
    BRIGHTNESS,
    CONTRAST,
    ELASTIC_TRANSFORM,
    JPEG_COMPRESSION,
    PIXELATE,
    SATURATE,
)
from slimbayes.shifts.corruptions.noise import GAUSSIAN_NOISE, IMPULSE_NOISE, SHOT_NOISE, SPECKLE_NOISE
from slimbayes.shifts.corruptions.weather import FOG, FROST, SNOW, SPATTER

__all__ = ["COMMON", "CORRUPTIONS", "EXTRA", "corrupt"]

# In the order of the paper. A corruption's position here is part of its seed: new ones go to the end.
_COMMON = (
    *(GAUSSIAN_NOISE, SHOT_NOISE, IMPULSE_NOISE),
    *(DEFOCUS_BLUR, GLASS_BLUR, MOTION_BLUR, ZOOM_BLUR),
    *(SNOW, FROST, FOG, BRIGHTNESS),
    *(CONTRAST, ELASTIC_TRANSFORM, PIXELATE, JPEG_COMPRESSION),
)
_EXTRA = (SPECKLE_NOISE, GAUSSIAN_BLUR, SPATTER, SATURATE)

#: The names of the 15 corruptions that models are compared on.
COMMON: tuple[str, ...] = tuple(corruption.name for corruption in _COMMON)
#: The names of the 4 corruptions that are meant for choosing settings.
EXTRA: tuple[str, ...] = tuple(corruption.name for corruption in _EXTRA)
#: All of them.
CORRUPTIONS: Mapping[str, Corruption] = MappingProxyType({one.name: one for one in (*_COMMON, *_EXTRA)})


#: Corruptions that add colour or look at it. A grey image is given to them with three equal channels, and its result is
#: made grey again by its luma. All others treat every channel in the same way and are given the one channel.
_OF_COLOURS = {"snow", "frost", "brightness", "spatter", "saturate"}

#: The largest sides for which the constants of 32 and 64 are the nearest.
_LARGEST_SIDES = {32: 48, 64: 144}

#: Values that are worked on at a time: few enough for a processor's cache.
_BLOCK = 2**16

#: An image's number is part of the counter of its random numbers; NumPy turns larger integers into floats.
_LARGEST_NUMBER = 2**63 - 1


def corrupt(
    images: Tensor,
    name: str,
    severity: int,
    *,
    seed: int = 0,
    numbers: Tensor | Sequence[int] | None = None,
    constants: int | None = None,
) -> Tensor:
    """Corrupt images as Hendrycks & Dietterich (2019) do for CIFAR-10-C, Tiny-ImageNet-C and ImageNet-C.

    The same seed gives an image of the same number the same corruption, whatever the batch it is in.

    Args:
        images: Square, 8 bits.
        name: One of ``COMMON`` or ``EXTRA``.
        severity: 1 to 5.
        seed: Of the random numbers.
        numbers: ``(n,)``: each image's number within its data set. 0, 1, ... by default.
        constants: Whose constants say what a severity is: those of CIFAR-10-C (32), Tiny-ImageNet-C (64) or ImageNet-C
            (224). By default those of the nearest side: up to 48 pixels 32, up to 144 64.

    Shape:
        - Images: ``(n, channels, side, side)``, 1 or 3 channels, uint8; the result too.

    Raises:
        ValueError: An argument is not of these.
        ImportError: ``frost`` without the package torch-uncertainty-assets, or ``jpeg_compression`` without pillow.

    Example:
        >>> images = torch.full((2, 3, 32, 32), 100, dtype=torch.uint8)
        >>> noisy = corrupt(images, "gaussian_noise", severity=1, seed=1)
        >>> noisy.float().std().round().item()  # 0.04 * 255
        10.0
        >>> second = corrupt(images[1:], "gaussian_noise", severity=1, seed=1, numbers=[1])
        >>> torch.equal(second[0], noisy[1])
        True
    """
    check_choice("name", name, CORRUPTIONS)
    _check_images(images)
    check_count("seed", seed, minimum=0)
    check_count("severity", severity)
    if severity > 5:
        raise ValueError(f"Expected argument `severity` to be an integer from 1 to 5, but got {severity!r}.")
    corruption, count = CORRUPTIONS[name], len(images)
    chosen = corruption.constants[_set_of_constants(constants, images.shape[-1])][severity - 1]
    key = np.random.SeedSequence((seed, list(CORRUPTIONS).index(name), severity)).generate_state(2, np.uint64)
    rows = _numbers(numbers, count)
    corrupted = torch.empty(images.shape, dtype=torch.uint8)
    pixels, results = (one.permute(0, 2, 3, 1).numpy() for one in (images.cpu(), corrupted))
    step = max(1, _BLOCK // max(1, pixels[:1].size))
    for block in (slice(first, first + step) for first in range(0, count, step)):
        results[block] = _corrupted(corruption, pixels[block], chosen, key, rows[block])
    return corrupted.to(images.device)


def _corrupted(corruption: Corruption, images: Images, constants: Any, key: NDArray[Any], rows: list[int]) -> Images:
    if images.shape[-1] == 1 and corruption.name in _OF_COLOURS:
        return _luma(_corrupted(corruption, images.repeat(3, -1), constants, key, rows))
    if corruption.draw is None:
        return corruption.apply(images, constants)
    sources = (np.random.Generator(np.random.Philox(key=key, counter=(0, 0, 0, row))) for row in rows)
    draws = [corruption.draw(source, image, constants) for source, image in zip(sources, images, strict=True)]
    return corruption.apply(images, constants, *map(np.stack, zip(*draws, strict=True)))


def _luma(images: Images) -> Images:
    """0.299 R + 0.587 G + 0.114 B, rounded; exact where the three are equal."""
    weights = np.array([19595, 38470, 7471], np.uint32)  # they sum to 2 ** 16
    return ((images @ weights + 2**15) >> 16).astype(np.uint8)[..., None]


def _set_of_constants(constants: int | None, side: int) -> int:
    if constants is None:
        return next((size for size, largest in _LARGEST_SIDES.items() if side <= largest), 224)
    if constants not in (32, 64, 224):
        raise ValueError(f"Expected argument `constants` to be 32, 64, 224 or None, but got {constants!r}.")
    return constants


def _numbers(numbers: Tensor | Sequence[int] | None, count: int) -> list[int]:
    rows = range(count) if numbers is None else numbers
    rows = rows.tolist() if isinstance(rows, Tensor | np.ndarray) else rows
    listed = list(map(_number, rows)) if isinstance(rows, Iterable) else []
    if len(listed) != count or not all(0 <= row <= _LARGEST_NUMBER for row in listed):
        raise ValueError(
            f"Expected argument `numbers` to be {count} integers of at least 0 and below 2 ** 63, one for each image, "
            f"but got {numbers!r}."
        )
    return listed


def _number(row: Any) -> int:
    """The integer, or -1 for what is none."""
    try:
        return -1 if isinstance(row, bool) else operator.index(row)
    except TypeError:
        return -1


def _check_images(images: Tensor) -> None:
    expected = "Expected argument `images` to be 8-bit images (n, 1 or 3 channels, side, side)"
    if not isinstance(images, Tensor):
        raise ValueError(f"{expected} in a tensor, but got {type(images).__name__}. Try torch.as_tensor(images).")
    if images.dtype != torch.uint8:
        raise ValueError(
            f"{expected}, but got {images.dtype}. Corrupt images before they are standardised; images between 0 and 1 "
            "can be given as (255 * images).round().to(torch.uint8)."
        )
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(f"{expected}, but got shape {tuple(images.shape)}. Permute their axes, or add one.")
    if images.shape[2] != images.shape[3] or images.shape[3] == 0:
        raise ValueError(
            f"{expected}, but got shape {tuple(images.shape)}. Corruptions are defined for square images: crop or "
            "resize these first, as ImageNet-C crops 224 x 224 pixels."
        )
