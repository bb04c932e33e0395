"""Defocus blur: a point becomes a disk."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from slimbayes.corruptions.base import Corruption, Images
from slimbayes.corruptions.filters import padded
from slimbayes.corruptions.pixels import unit_interval, whole_levels

__all__ = ["DEFOCUS_BLUR", "disk_kernel"]


@cache
def disk_kernel(radius: float, softness: float) -> NDArray[np.float32]:
    """A disk of equal weights, its edge smoothed by a Gaussian of 3x3 or, above radius 8, 5x5 cells.

    The smoothing mirrors at the kernel's border, so that the weights of radius 8 and more, which touch it, sum to a
    little over 1: those images become brighter, in the original too.

    >>> disk_kernel(1.5, 0.1)[7:10, 7:10].tolist()[0]
    [0.1111111119389534, 0.1111111119389534, 0.1111111119389534]
    """
    reach, edge = (8, 1) if radius <= 8 else (int(radius), 2)
    cells = np.arange(-reach, reach + 1)
    disk = (cells[:, None] ** 2 + cells**2 <= radius**2).astype(np.float32)
    disk /= disk.sum()
    weights = np.exp(-(np.arange(-edge, edge + 1) ** 2) / (2 * softness**2))
    # In single precision, as in the original: nine equal weights must sum to what they sum to there.
    weights = (weights / weights.sum()).astype(np.float32)
    for axis in 0, 1:
        wide = padded(disk, edge, axis, "whole_mirror")
        disk = sum((w * wide.take(k + cells + reach, axis) for k, w in enumerate(weights)), np.zeros_like(disk))
    return disk


def _blur(images: Images, constants: tuple[float, float]) -> Images:
    kernel = disk_kernel(*constants).astype(np.float64)
    middle, side = len(kernel) // 2, images.shape[1]
    taps = np.argwhere(kernel)
    margin = int(abs(taps - middle).max())
    wide = padded(padded(unit_interval(images), margin, 1, "whole_mirror"), margin, 2, "whole_mirror")
    total = np.zeros(images.shape)
    for tap in taps:
        top, left = tap - middle + margin
        total += wide[:, top : top + side, left : left + side] * kernel[tuple(tap)]
    return whole_levels(total)


DEFOCUS_BLUR = Corruption(
    "defocus_blur",
    {
        32: ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        64: ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
        224: ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    },
    _blur,
)
