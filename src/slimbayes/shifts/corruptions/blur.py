"""Blur: Gaussian, defocus, glass, motion and zoom."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimbayes.shifts.corruptions._ops import (
    Corruption,
    Draws,
    Images,
    centre_zoom,
    gaussian_filter,
    line_blur,
    padded,
    unit_interval,
    whole_levels,
)

__all__ = ["DEFOCUS_BLUR", "GAUSSIAN_BLUR", "GLASS_BLUR", "MOTION_BLUR", "ZOOM_BLUR", "disk_kernel"]


def _gaussian_blur(images: Images, sigma: float) -> Images:
    return whole_levels(gaussian_filter(unit_interval(images), sigma))


GAUSSIAN_BLUR = Corruption(
    "gaussian_blur",
    {32: (0.4, 0.6, 0.7, 0.8, 1), 64: (0.5, 0.75, 1, 1.25, 1.5), 224: (1, 2, 3, 4, 6)},
    _gaussian_blur,
)


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


def _defocus(images: Images, constants: tuple[float, float]) -> Images:
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
    _defocus,
)


def _draw_glass(source: np.random.Generator, image: Images, constants: tuple[float, int, int]) -> Draws:
    """Column and row offsets of each visit."""
    _, distance, passes = constants
    visits = max(len(image) - 2 * distance, 0) ** 2
    return (source.integers(-distance, distance, size=(passes, visits, 2), dtype=np.int8),)


def _glass(images: Images, constants: tuple[float, int, int], offsets: NDArray[Any]) -> Images:
    sigma, distance, _ = constants
    side = images.shape[1]
    visited = np.arange(side - distance, distance, -1)
    targets = (visited[:, None] * side + visited).ravel()
    sources = targets + (offsets[..., 1].astype(int) * side + offsets[..., 0])
    blurred = whole_levels(gaussian_filter(unit_interval(images), sigma))
    wandered = np.stack([_copied(*each, targets.tolist()) for each in zip(blurred, sources, strict=True)])
    return whole_levels(gaussian_filter(unit_interval(wandered), sigma))


def _copied(image: Images, sources: NDArray[np.intp], targets: list[int]) -> Images:
    """Copy to each target the pixel at its source, in order: a source may be a target that was visited before.

    The original's line is written as an exchange, but both sides share memory, so that it only copies.
    """
    side = len(image)
    origin = list(range(side * side))
    for visits in sources.tolist():
        for target, source in zip(targets, visits, strict=True):
            origin[target] = origin[source]
    return image.reshape(side * side, -1)[origin].reshape(image.shape)


GLASS_BLUR = Corruption(
    "glass_blur",
    {
        32: ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        64: ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
        224: ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    },
    _glass,
    _draw_glass,
)


def _draw_motion(source: np.random.Generator, image: Images, constants: tuple[float, float]) -> Draws:
    return (np.asarray(source.uniform(-45, 45)),)


def _motion(images: Images, constants: tuple[float, float], angles: NDArray[np.float64]) -> Images:
    return line_blur(images, *constants, angles)


MOTION_BLUR = Corruption(
    "motion_blur",
    {
        32: ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        64: ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
        224: ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    },
    _motion,
    _draw_motion,
)


def _zoom(images: Images, constants: tuple[float, float]) -> Images:
    end, step = constants
    factors = np.arange(1, end, step).tolist()
    values = unit_interval(images, np.float32)
    total = np.zeros_like(values)
    for factor in factors:
        total += centre_zoom(values, factor)
    return whole_levels((values + total) / (len(factors) + 1))


# The rounding of the steps decides whether the end itself is a factor: 1.06 and 1.11 are, the others are not.
_SMALL_ZOOMS = ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01))

ZOOM_BLUR = Corruption(
    "zoom_blur",
    {32: _SMALL_ZOOMS, 64: _SMALL_ZOOMS, 224: ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))},
    _zoom,
)
