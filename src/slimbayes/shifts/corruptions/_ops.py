"""What a corruption is, and operations on batches of images that several of them share: borders, blurs and a zoom."""

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

#: ``(images, side, side, channels)``, uint8; channels are 1 (grey) or 3.
Images = NDArray[np.uint8]
#: Random numbers; each array's first axis counts the images.
Draws = tuple[NDArray[Any], ...]


class Corruption(NamedTuple):
    """One of the common corruptions (Hendrycks & Dietterich 2019).

    Attributes:
        name: As in the files of CIFAR-10-C.
        constants: For images of side 32, 64 and 224: what each severity from 1 to 5 means.
        apply: Takes images, the constants of a severity and the draws of all images; returns corrupted images.
        draw: Takes a source of random numbers, one image ``(side, side, channels)`` and the constants; returns the
            image's random numbers. None for what is deterministic. Each image has a source of its own, so that what
            becomes of it depends on neither its batch nor its neighbours.
    """

    name: str
    constants: Mapping[int, tuple[Any, ...]]
    apply: Callable[..., Images]
    draw: Callable[[np.random.Generator, Images, Any], Draws] | None = None


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


def centre_zoom(values: NDArray[Any], factor: float) -> NDArray[Any]:
    """Crop the middle of each image and enlarge it to the old size, linearly and with aligned corners.

    Args:
        values: ``(n, side, side)`` or ``(n, side, side, channels)``, floating point; the result has the same type.
        factor: At least 1.

    >>> centre_zoom(np.arange(16.0).reshape(1, 4, 4), 2)[0, :, 0].round(2).tolist()
    [5.0, 6.33, 7.67, 9.0]
    """
    lower, upper, share = _neighbours(values.shape[1], factor)
    if not share.any():  # whole pixels
        return values[:, lower][:, :, lower]
    share = share.reshape(-1, *[1] * (values.ndim - 2))
    rows = values[:, lower] * (1 - share) + values[:, upper] * share
    share = share.reshape(-1, *[1] * (values.ndim - 3))
    return (rows.take(lower, 2) * (1 - share) + rows.take(upper, 2) * share).astype(values.dtype)


@cache
def _neighbours(side: int, factor: float) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """For each pixel of the result: the two pixels it lies between, and the share of the second."""
    crop = math.ceil(side / factor)
    enlarged = round(crop * factor)
    first, skipped = (side - crop) // 2, (enlarged - side) // 2
    positions = (np.arange(side) + skipped) * ((crop - 1) / max(enlarged - 1, 1))
    lower = np.minimum(np.floor(positions).astype(np.intp), max(crop - 2, 0))
    return first + lower, first + np.minimum(lower + 1, crop - 1), positions - lower


def line_blur(images: Images, radius: float, sigma: float, angles: NDArray[np.float64]) -> Images:
    """Smear each image along a line; since the line starts at the pixel, the picture moves as well.

    Tap i = 0 .. 2 ceil(radius) has a weight proportional to exp(-i² / 2σ²) and is read from the nearest pixel,
    ``ceil(i cos(angle) - 0.5)`` columns to the right and ``ceil(i sin(angle) - 0.5)`` rows down; the border is
    replicated. Sums are rounded to 16 bits, and the 8 bits of the result are cut from these.

    Args:
        images: ``(n, side, side)`` or ``(n, side, side, channels)``.
        radius: Where the line ends.
        sigma: How far along it the blur reaches, in pixels.
        angles: ``(n,)``, in degrees.

    >>> row = np.zeros((1, 5, 5), np.uint8)
    >>> row[0, :, 3] = 255
    >>> line_blur(row, 2, 1.0, np.zeros(1))[0, 0].tolist()
    [1, 19, 88, 145, 0]
    """
    taps = np.arange(2 * math.ceil(radius) + 1)
    weights = np.exp(-(taps**2) / (2 * sigma**2))
    weights *= 257 / weights.sum()
    radians = np.deg2rad(angles)[:, None]
    down = np.ceil(taps * np.sin(radians) - 0.5).astype(int)
    right = np.ceil(taps * np.cos(radians) - 0.5).astype(int)
    blurred = [_sum_of_taps(*each, weights) for each in zip(images, down, right, strict=True)]
    return ((np.stack(blurred) + 0.5).astype(np.uint16) // 257).astype(np.uint8)


def _sum_of_taps(image: Images, down: NDArray[Any], right: NDArray[Any], weights: NDArray[Any]) -> NDArray[np.float64]:
    height, width = image.shape[:2]
    rows = border_index(np.arange(down.min(), height + down.max()), height, "replicate")
    columns = border_index(np.arange(right.min(), width + right.max()), width, "replicate")
    wide = image[rows].take(columns, 1).astype(np.float64)
    total = np.zeros(image.shape)
    for top, left, weight in zip((down - down.min()).tolist(), (right - right.min()).tolist(), weights, strict=True):
        total += wide[top : top + height, left : left + width] * weight
    return total
