"""The motion blur of ImageMagick 6: half of a Gaussian along a digital line."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimbayes.corruptions.base import Images
from slimbayes.corruptions.filters import border_index

__all__ = ["line_blur"]


def line_blur(images: Images, radius: float, sigma: float, angles: NDArray[np.float64]) -> Images:
    """Smear each image along a line; since the line starts at the pixel, the picture moves as well.

    Tap i = 0 .. 2 ceil(radius) has a weight proportional to exp(-i² / 2σ²) and is read from the nearest pixel,
    ``ceil(i cos(angle) - 0.5)`` columns to the right and ``ceil(i sin(angle) - 0.5)`` rows down; the border is
    replicated. Sums are rounded to 16 bits, and the 8 bits of the result are cut from these.

    Args:
        images: ``(n, side, side)`` or ``(n, side, side, channels)``.
        radius: Where the line ends.
        sigma: How far along it the blur reaches, in pixels.
        angles: ``(n,)``, in degrees.

    >>> row = np.zeros((1, 5, 5), np.uint8)
    >>> row[0, :, 3] = 255
    >>> line_blur(row, 2, 1.0, np.zeros(1))[0, 0].tolist()
    [1, 19, 88, 145, 0]
    """
    taps = np.arange(2 * math.ceil(radius) + 1)
    weights = np.exp(-(taps**2) / (2 * sigma**2))
    weights *= 257 / weights.sum()
    radians = np.deg2rad(angles)[:, None]
    down = np.ceil(taps * np.sin(radians) - 0.5).astype(int)
    right = np.ceil(taps * np.cos(radians) - 0.5).astype(int)
    blurred = [_sum_of_taps(*each, weights) for each in zip(images, down, right, strict=True)]
    return ((np.stack(blurred) + 0.5).astype(np.uint16) // 257).astype(np.uint8)


def _sum_of_taps(image: Images, down: NDArray[Any], right: NDArray[Any], weights: NDArray[Any]) -> NDArray[np.float64]:
    height, width = image.shape[:2]
    rows = border_index(np.arange(down.min(), height + down.max()), height, "replicate")
    columns = border_index(np.arange(right.min(), width + right.max()), width, "replicate")
    wide = image[rows].take(columns, 1).astype(np.float64)
    total = np.zeros(image.shape)
    for top, left, weight in zip((down - down.min()).tolist(), (right - right.min()).tolist(), weights, strict=True):
        total += wide[top : top + height, left : left + width] * weight
    return total
