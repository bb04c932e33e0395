"""Noise in each value by itself: Gaussian, shot, impulse and speckle noise."""

import numpy as np
from numpy.typing import NDArray

from slimbayes.shifts.corruptions._ops import Corruption, Draws, Images, unit_interval, whole_levels

__all__ = ["GAUSSIAN_NOISE", "IMPULSE_NOISE", "SHOT_NOISE", "SPECKLE_NOISE"]


def _draw_normal(source: np.random.Generator, image: Images, scale: float) -> Draws:
    return (source.normal(scale=scale, size=image.shape),)


def _add(images: Images, scale: float, noise: NDArray[np.float64]) -> Images:
    return whole_levels(unit_interval(images) + noise)


def _add_in_proportion(images: Images, scale: float, noise: NDArray[np.float64]) -> Images:
    values = unit_interval(images)
    return whole_levels(values + values * noise)


def _draw_counts(source: np.random.Generator, image: Images, photons: float) -> Draws:
    return (source.poisson(unit_interval(image) * photons),)


def _counted(images: Images, photons: float, counts: NDArray[np.int64]) -> Images:
    return whole_levels(counts / photons)


def _draw_impulses(source: np.random.Generator, image: Images, share: float) -> Draws:
    return source.random(image.shape) < share, source.random(image.shape) < 0.5


def _replace(images: Images, share: float, replaced: NDArray[np.bool_], salt: NDArray[np.bool_]) -> Images:
    return np.where(replaced, np.uint8(255) * salt, images)


GAUSSIAN_NOISE = Corruption(
    "gaussian_noise",
    {32: (0.04, 0.06, 0.08, 0.09, 0.1), 64: (0.04, 0.08, 0.12, 0.15, 0.18), 224: (0.08, 0.12, 0.18, 0.26, 0.38)},
    _add,
    _draw_normal,
)
SHOT_NOISE = Corruption(
    "shot_noise",
    {32: (500, 250, 100, 75, 50), 64: (250, 100, 50, 30, 15), 224: (60, 25, 12, 5, 3)},
    _counted,
    _draw_counts,
)
IMPULSE_NOISE = Corruption(
    "impulse_noise",
    {32: (0.01, 0.02, 0.03, 0.05, 0.07), 64: (0.01, 0.02, 0.05, 0.08, 0.14), 224: (0.03, 0.06, 0.09, 0.17, 0.27)},
    _replace,
    _draw_impulses,
)
SPECKLE_NOISE = Corruption(
    "speckle_noise",
    {32: (0.06, 0.1, 0.12, 0.16, 0.2), 64: (0.15, 0.2, 0.25, 0.3, 0.35), 224: (0.15, 0.2, 0.35, 0.45, 0.6)},
    _add_in_proportion,
    _draw_normal,
)
