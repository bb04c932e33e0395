"""Fog: a plasma fractal over the image, which loses contrast."""

import numpy as np
from numpy.typing import NDArray

from slimbayes.corruptions.base import Corruption, Draws, Images
from slimbayes.corruptions.pixels import unit_interval, whole_levels
from slimbayes.corruptions.plasma import plasma, plasma_side

__all__ = ["FOG"]


def _draw(random: np.random.Generator, image: Images, constants: tuple[float, float]) -> Draws:
    return (random.random(plasma_side(len(image)) ** 2 - 1),)


def _apply(images: Images, constants: tuple[float, float], uniforms: NDArray[np.float64]) -> Images:
    """``(x + density * P) * m / (m + density)``, P a fractal and m the largest value of the image."""
    density, decay = constants
    side = images.shape[1]
    values = unit_interval(images)
    largest = values.max((1, 2, 3), keepdims=True)
    values += density * plasma(uniforms, decay)[:, :side, :side, None]
    return whole_levels(values * largest / (largest + density))


FOG = Corruption(
    "fog",
    {
        32: ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        64: ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
        224: ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    },
    _apply,
    _draw,
)
