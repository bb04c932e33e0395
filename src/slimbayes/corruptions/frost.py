"""Frost: a photograph of frost laid over the image."""

from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimbayes.corruptions.base import Corruption, Draws, Images

__all__ = ["FROST", "frost_photograph"]

#: The original draws from five files of which the second and third show the same photograph; the package holds it once.
#: Its last file, frost5.jpg, is the original's sixth, which is never drawn.
_DRAWN_FILES = ("frost1.jpg", "frost2.jpg", "frost2.jpg", "frost3.jpg", "frost4.jpg")


@cache
def _full_photograph(file: str) -> NDArray[np.uint8]:
    try:
        from PIL import Image

        folder = files("torch_uncertainty_assets.frost")
    except ImportError as error:
        raise ImportError(
            "The corruption frost needs the photographs of torch-uncertainty-assets, and pillow to read them: "
            'pip install torch-uncertainty-assets pillow, or pip install "slimbayes[report]"'
        ) from error
    with folder.joinpath(file).open("rb") as stream:
        return np.asarray(Image.open(stream).convert("RGB"))


def _interpolated(photograph: NDArray[Any], factor: float, axis: int) -> NDArray[np.float64]:
    """Linear interpolation with half-pixel centres and no low-pass filter."""
    length = photograph.shape[axis]
    positions = np.clip((np.arange(round(length * factor)) + 0.5) / factor - 0.5, 0, length - 1)
    before = np.minimum(positions.astype(np.intp), length - 2)
    share = (positions - before).reshape([-1 if i == axis else 1 for i in range(3)])
    return photograph.take(before, axis) * (1 - share) + photograph.take(before + 1, axis) * share


@cache
def frost_photograph(index: int, reduction: float, side: int) -> NDArray[np.uint8]:
    """One of the five photographs that are drawn, ``(height, width, 3)``.

    Args:
        index: 0 to 4.
        reduction: Height and width as a share of the file's; more if an image would not fit in.
        side: Of the images that a crop is to cover.
    """
    photograph = _full_photograph(_DRAWN_FILES[index])
    factor = max(reduction, (side + 1) / min(photograph.shape[:2]))
    if factor == 1:
        return photograph
    return np.rint(_interpolated(_interpolated(photograph, factor, 0), factor, 1)).astype(np.uint8)


def _draw(random: np.random.Generator, image: Images, constants: tuple[float, float, float]) -> Draws:
    index, side = int(random.integers(len(_DRAWN_FILES))), len(image)
    height, width, _ = frost_photograph(index, constants[2], side).shape
    return (np.array([index, random.integers(height - side), random.integers(width - side)]),)


def _apply(images: Images, constants: tuple[float, float, float], places: NDArray[np.integer]) -> Images:
    """``kept * image + added * F`` in grey levels, F a crop of a photograph at a random place."""
    kept, added, reduction = constants
    pixels = np.arange(images.shape[1])
    rows, columns = places[:, 1, None, None] + pixels[:, None], places[:, 2, None, None] + pixels
    result = np.empty_like(images)
    for index in np.unique(places[:, 0]):
        here = places[:, 0] == index
        crop = frost_photograph(int(index), reduction, len(pixels))[rows[here], columns[here]]
        result[here] = np.clip(kept * images[here] + added * crop, 0, 255).astype(np.uint8)
    return result


def _with_reduction(reduction: float, *severities: tuple[float, float]) -> tuple[tuple[float, float, float], ...]:
    return tuple((kept, added, reduction) for kept, added in severities)


FROST = Corruption(
    "frost",
    {
        32: _with_reduction(0.2, (1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        64: _with_reduction(0.3, (1, 0.3), (0.9, 0.4), (0.8, 0.45), (0.75, 0.5), (0.7, 0.55)),
        224: _with_reduction(1, (1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    },
    _apply,
    _draw,
)
