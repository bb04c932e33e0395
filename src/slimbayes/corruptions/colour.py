"""Brightness, contrast and saturation."""

import numpy as np

from slimbayes.corruptions.base import Corruption, Images
from slimbayes.corruptions.hsv import hsv_of_rgb, rgb_of_hsv
from slimbayes.corruptions.pixels import unit_interval, whole_levels

__all__ = ["BRIGHTNESS", "CONTRAST", "SATURATE"]


def _brighten(images: Images, added: float) -> Images:
    """Add to the value V of hue, saturation and value, and clip it."""
    hue, saturation, value = hsv_of_rgb(unit_interval(images))
    return whole_levels(rgb_of_hsv(hue, saturation, np.clip(value + added, 0, 1)))


def _lower_contrast(images: Images, factor: float) -> Images:
    """``(x - mean) * factor + mean`` with the mean of each channel of each image."""
    values = unit_interval(images)
    # Whole numbers: the sum does not depend on the order, and so not on the batch.
    mean = images.sum((1, 2), np.int64, keepdims=True) / (255 * images.shape[1] * images.shape[2])
    return whole_levels((values - mean) * factor + mean)


def _saturate(images: Images, constants: tuple[float, float]) -> Images:
    """Turn the saturation S into ``factor * S + added`` and clip it; severities 1 and 2 make colours paler."""
    factor, added = constants
    hue, saturation, value = hsv_of_rgb(unit_interval(images))
    return whole_levels(rgb_of_hsv(hue, np.clip(saturation * factor + added, 0, 1), value))


BRIGHTNESS = Corruption(
    "brightness",
    {32: (0.05, 0.1, 0.15, 0.2, 0.3), 64: (0.1, 0.2, 0.3, 0.4, 0.5), 224: (0.1, 0.2, 0.3, 0.4, 0.5)},
    _brighten,
)
CONTRAST = Corruption(
    "contrast",
    {32: (0.75, 0.5, 0.4, 0.3, 0.15), 64: (0.4, 0.3, 0.2, 0.1, 0.05), 224: (0.4, 0.3, 0.2, 0.1, 0.05)},
    _lower_contrast,
)
SATURATE = Corruption(
    "saturate",
    {
        32: ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        64: ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)),
        224: ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    },
    _saturate,
)
