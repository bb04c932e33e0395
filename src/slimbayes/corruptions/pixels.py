"""From grey levels to the unit interval and back."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from slimbayes.corruptions.base import Images

__all__ = ["unit_interval", "whole_levels"]


def unit_interval(images: Images, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Grey levels divided by 255."""
    return np.divide(images, 255, dtype=dtype)


def whole_levels(values: NDArray[Any]) -> Images:
    """Clip to the unit interval, multiply by 255 and cut the fraction off, as the original does (it never rounds).

    >>> whole_levels(np.array([-1.0, 0.5, 2.0])).tolist()
    [0, 127, 255]
    """
    values = np.clip(values, 0, 1)
    values *= 255
    return values.astype(np.uint8)
