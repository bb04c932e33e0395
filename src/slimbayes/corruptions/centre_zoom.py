"""Enlarging the middle of an image, with the original's small shifts off the centre."""

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["centre_zoom"]


def centre_zoom(values: NDArray[Any], factor: float) -> NDArray[Any]:
    """Crop the middle of each image and enlarge it to the old size, linearly and with aligned corners.

    Args:
        values: ``(n, side, side)`` or ``(n, side, side, channels)``, floating point; the result has the same type.
        factor: At least 1.

    >>> centre_zoom(np.arange(16.0).reshape(1, 4, 4), 2)[0, :, 0].round(2).tolist()
    [5.0, 6.33, 7.67, 9.0]
    """
    lower, upper, share = _positions(values.shape[1], factor)
    if not share.any():  # whole pixels
        return values[:, lower][:, :, lower]
    share = share.reshape(-1, *[1] * (values.ndim - 2))
    rows = values[:, lower] * (1 - share) + values[:, upper] * share
    share = share.reshape(-1, *[1] * (values.ndim - 3))
    return (rows.take(lower, 2) * (1 - share) + rows.take(upper, 2) * share).astype(values.dtype)


@cache
def _positions(side: int, factor: float) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """For each pixel of the result: the two pixels it lies between, and the share of the second."""
    crop = math.ceil(side / factor)
    enlarged = round(crop * factor)
    first, skipped = (side - crop) // 2, (enlarged - side) // 2
    places = (np.arange(side) + skipped) * ((crop - 1) / max(enlarged - 1, 1))
    lower = np.minimum(np.floor(places).astype(np.intp), max(crop - 2, 0))
    return first + lower, first + np.minimum(lower + 1, crop - 1), places - lower
