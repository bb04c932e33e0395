"""Hexcone hue, saturation and value."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["hsv_of_rgb", "rgb_of_hsv"]

Channels = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]

_GREEN_SECTOR, _BLUE_SECTOR = 2, 4


def hsv_of_rgb(rgb: NDArray[Any]) -> Channels:
    """Hue, saturation and value of colours ``(..., 3)``, all of them in the unit interval.

    With M the largest and m the smallest channel: V = M and S = (M - m) / M; H is, in sixths of a turn,
    (G - B) / (M - m) where red is the largest, 2 + (B - R) / (M - m) where green is and 4 + (R - G) / (M - m) where
    blue is. Greys have H = S = 0.

    >>> [float(one) for one in hsv_of_rgb(np.array([0.0, 0.5, 0.25]))]
    [0.4166666666666667, 1.0, 0.5]
    """
    red, green, blue = np.moveaxis(rgb, -1, 0)
    value = np.maximum(np.maximum(red, green), blue)
    spread = value - np.minimum(np.minimum(red, green), blue)
    divisor = np.where(spread == 0, 1, spread)
    sixths = np.where(
        blue == value,
        _BLUE_SECTOR + (red - green) / divisor,
        np.where(green == value, _GREEN_SECTOR + (blue - red) / divisor, (green - blue) / divisor),
    )
    hue = np.where(spread == 0, 0, sixths / 6 % 1)
    return hue, spread / np.where(value == 0, 1, value), value


def rgb_of_hsv(hue: NDArray[Any], saturation: NDArray[Any], value: NDArray[Any]) -> NDArray[Any]:
    """Colours ``(..., 3)`` of that hue, saturation and value: the inverse of :func:`hsv_of_rgb`.

    >>> rgb_of_hsv(np.array(2.5 / 6), np.array(1.0), np.array(0.5)).tolist()
    [0.0, 0.5, 0.25]
    """
    sector = np.floor(hue * 6)
    within = hue * 6 - sector
    low = value * (1 - saturation)
    falling = value * (1 - within * saturation)
    rising = value * (1 - (1 - within) * saturation)
    sector = sector.astype(np.intp) % 6
    red = np.choose(sector, (value, falling, low, low, rising, value))
    green = np.choose(sector, (rising, value, value, falling, low, low))
    blue = np.choose(sector, (low, low, rising, value, value, falling))
    return np.stack((red, green, blue), -1)
