"""Gaussian smoothing of a batch of images, and what lies beyond an image's border."""

from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Border", "border_index", "gaussian_filter", "gaussian_weights", "padded"]

#: ``replicate``: a a | a b c d | d d. ``half_mirror``: b a | a b c d | d c. ``whole_mirror``: c b | a b c d | c b.
Border = Literal["replicate", "half_mirror", "whole_mirror"]

_WIDEST_SUM = 32


def border_index(positions: NDArray[np.integer], side: int, border: Border) -> NDArray[np.integer]:
    """Which pixel of a line of ``side`` pixels stands for each position, inside the line or however far outside.

    >>> border_index(np.arange(-2, 5), 3, "half_mirror").tolist()
    [1, 0, 0, 1, 2, 2, 1]
    """
    if border == "replicate" or side == 1:
        return np.clip(positions, 0, side - 1)
    if border == "half_mirror":
        folded = positions % (2 * side)
        return np.minimum(folded, 2 * side - 1 - folded)
    folded = positions % (2 * side - 2)
    return np.minimum(folded, 2 * side - 2 - folded)


def padded(values: NDArray[Any], margin: int, axis: int, border: Border) -> NDArray[Any]:
    """Values with ``margin`` more pixels on either side of an axis."""
    side = values.shape[axis]
    return values.take(border_index(np.arange(-margin, side + margin), side, border), axis)


@cache
def gaussian_weights(sigma: float, truncate: float = 4.0) -> NDArray[np.float64]:
    """The weights of offsets ``-r .. r``, where r is the integer part of ``truncate * sigma + 0.5``.

    >>> gaussian_weights(0.25).round(4).tolist()
    [0.0003, 0.9993, 0.0003]
    """
    radius = int(truncate * sigma + 0.5)
    offsets = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 / (sigma * sigma) * offsets**2) if radius else np.ones(1)
    weights /= weights.sum()
    weights.flags.writeable = False
    return weights


def gaussian_filter(
    values: NDArray[Any], sigma: float, truncate: float = 4.0, border: Border = "replicate"
) -> NDArray[np.float64]:
    """Smooth the rows and columns of each image; channels and images are never mixed.

    Args:
        values: ``(n, side, side)`` or ``(n, side, side, channels)``.
        sigma: Standard deviation in pixels; 0 leaves the values as they are.
        truncate: The kernel ends after this many standard deviations.
        border: What lies beyond the border.

    >>> point = np.zeros((1, 3, 3))
    >>> point[0, 1, 1] = 1
    >>> gaussian_filter(point, 0.5)[0].round(3).tolist()
    [[0.011, 0.084, 0.011], [0.084, 0.619, 0.084], [0.011, 0.084, 0.011]]
    """
    weights = gaussian_weights(sigma, truncate)
    values = np.asarray(values, np.float64)
    if len(weights) == 1:
        return values
    filtered = _by_sums if len(weights) <= 2 * _WIDEST_SUM else _by_matrix
    return filtered(filtered(values, weights, 1, border), weights, 2, border)


def _by_sums(values: NDArray[Any], weights: NDArray[Any], axis: int, border: Border) -> NDArray[Any]:
    """Add up pixels at equal distances, the farthest first: SciPy's order, so that sums are cut at the same level."""
    side, radius = values.shape[axis], len(weights) // 2
    wide = padded(values, radius, axis, border)

    def shifted(offset: int) -> NDArray[Any]:
        return wide[(slice(None),) * axis + (slice(radius + offset, radius + offset + side),)]

    total = values * weights[radius]
    pair = np.empty_like(total)
    for distance in range(radius, 0, -1):
        np.add(shifted(-distance), shifted(distance), out=pair)
        pair *= weights[radius + distance]
        total += pair
    return total


def _by_matrix(values: NDArray[Any], weights: NDArray[Any], axis: int, border: Border) -> NDArray[Any]:
    """A kernel far wider than the image folds into a matrix ``(side, side)``."""
    side, radius = values.shape[axis], len(weights) // 2
    rows = np.arange(side)[:, None]
    columns = border_index(rows + np.arange(-radius, radius + 1), side, border)
    matrix = np.zeros((side, side))
    np.add.at(matrix, (rows, columns), weights)
    return np.moveaxis(matrix @ np.moveaxis(values, axis, -2), -2, axis)
