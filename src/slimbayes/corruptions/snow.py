"""Snow: flakes with streaks, over an image that is whitened."""

import numpy as np
from numpy.typing import NDArray

from slimbayes.corruptions.base import Corruption, Draws, Images
from slimbayes.corruptions.centre_zoom import centre_zoom
from slimbayes.corruptions.line_blur import line_blur
from slimbayes.corruptions.pixels import unit_interval, whole_levels

__all__ = ["SNOW"]

#: Mean and standard deviation of the layer, its zoom, the threshold of a flake, radius and sigma of its streak, and the
#: share of the image that is not whitened.
Constants = tuple[float, float, float, float, float, float, float]

_STEEPEST, _FLATTEST = -135, -45


def _draw(random: np.random.Generator, image: Images, constants: Constants) -> Draws:
    layer = random.normal(constants[0], constants[1], image.shape[:2])
    return layer, np.asarray(random.uniform(_STEEPEST, _FLATTEST))


def _apply(images: Images, constants: Constants, layers: NDArray[np.float64], angles: NDArray[np.float64]) -> Images:
    """``kept * x + (1 - kept) * max(x, 1.5 grey + 0.5)``, plus the flakes, plus the flakes turned by 180 degrees.

    Flakes are what is above the threshold in an enlarged layer of normal noise, smeared along a steep line.
    """
    _, _, zoom, threshold, radius, sigma, kept = constants
    layers = centre_zoom(layers, zoom)
    flakes = unit_interval(line_blur(whole_levels(np.where(layers < threshold, 0, layers)), radius, sigma, angles))
    values = unit_interval(images, np.float32)
    red, green, blue = np.moveaxis(values, -1, 0)
    grey = (0.299 * red + 0.587 * green + 0.114 * blue)[..., None]
    whitened = kept * values + (1 - kept) * np.maximum(values, grey * 1.5 + 0.5)
    return whole_levels(whitened + flakes[..., None] + flakes[:, ::-1, ::-1, None])


SNOW = Corruption(
    "snow",
    {
        32: (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        64: (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.8),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.8),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.65),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
        ),
        224: (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    },
    _apply,
    _draw,
)
