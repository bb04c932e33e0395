"""Zoom blur: the mean of an image and of enlargements of its middle."""

import numpy as np

from slimbayes.corruptions.base import Corruption, Images
from slimbayes.corruptions.centre_zoom import centre_zoom
from slimbayes.corruptions.pixels import unit_interval, whole_levels

__all__ = ["ZOOM_BLUR"]


def _blur(images: Images, constants: tuple[float, float]) -> Images:
    end, step = constants
    factors = np.arange(1, end, step).tolist()
    values = unit_interval(images, np.float32)
    total = np.zeros_like(values)
    for factor in factors:
        total += centre_zoom(values, factor)
    return whole_levels((values + total) / (len(factors) + 1))


# The rounding of the steps decides whether the end itself is a factor: 1.06 and 1.11 are, the others are not.
_SMALL = ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01))

ZOOM_BLUR = Corruption(
    "zoom_blur",
    {32: _SMALL, 64: _SMALL, 224: ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))},
    _blur,
)
