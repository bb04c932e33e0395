"""Gaussian blur."""

from slimbayes.corruptions.base import Corruption, Images
from slimbayes.corruptions.filters import gaussian_filter
from slimbayes.corruptions.pixels import unit_interval, whole_levels

__all__ = ["GAUSSIAN_BLUR"]


def _blur(images: Images, sigma: float) -> Images:
    return whole_levels(gaussian_filter(unit_interval(images), sigma))


GAUSSIAN_BLUR = Corruption(
    "gaussian_blur",
    {32: (0.4, 0.6, 0.7, 0.8, 1), 64: (0.5, 0.75, 1, 1.25, 1.5), 224: (1, 2, 3, 4, 6)},
    _blur,
)
