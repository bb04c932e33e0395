"""Spatter: drops of water or flecks of mud on the lens."""

import numpy as np
from numpy.typing import NDArray

from slimbayes.corruptions.base import Corruption, Draws, Images
from slimbayes.corruptions.chamfer import chamfer_distance
from slimbayes.corruptions.edges import canny_edges
from slimbayes.corruptions.filters import gaussian_filter, padded
from slimbayes.corruptions.pixels import unit_interval, whole_levels

__all__ = ["SPATTER"]

#: Mean and standard deviation of the layer, sigma of its blur, threshold, strength of water or sigma of mud, and kind.
Constants = tuple[float, float, float, float, float, int]
Floats = NDArray[np.floating]

_WATER, _MUD = 0, 1
_COLOUR = {
    _WATER: np.array([175, 238, 238], np.float32) / np.float32(255),
    _MUD: np.array([63, 42, 20], np.float32) / np.float32(255),
}
_CANNY_LOW, _CANNY_HIGH = 50, 150
_FURTHEST = 20
_RELIEF = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))
_THINNEST_MUD = 0.8


def _draw(random: np.random.Generator, image: Images, constants: Constants) -> Draws:
    return (random.normal(constants[0], constants[1], image.shape[:2]),)


def _apply(images: Images, constants: Constants, normals: Floats) -> Images:
    """Smooth the layer, keep what is above the threshold, and turn it into water or mud."""
    _, _, sigma, threshold, extent, kind = constants
    layer = gaussian_filter(normals, sigma)
    values = unit_interval(images, np.float32)
    if kind == _MUD:
        mud = gaussian_filter(layer > threshold, extent)
        mud = np.where(mud < _THINNEST_MUD, 0, mud)[..., None]
        return whole_levels((values * (1 - mud)).astype(np.float32) + (mud * _COLOUR[_MUD]).astype(np.float32))
    water = _water(np.where(layer < threshold, 0, layer)) * np.float32(extent)
    return whole_levels(values + water[..., None] * _COLOUR[_WATER])


def _water(layer: Floats) -> Floats:
    """How much water shows at each pixel ``(n, side, side)``, at most 1: the layer times a relief around its edges.

    The relief is the distance to the nearest edge of the layer, at most 20; averaged over 3x3 pixels, equalised,
    filtered with a kernel that lights it from one side, and averaged again.
    """
    # A layer above 1 wraps around, as in the original.
    levels = (layer * 255).astype(np.int32).astype(np.uint8)
    distance = np.minimum(chamfer_distance(canny_edges(levels, _CANNY_LOW, _CANNY_HIGH)), np.float32(_FURTHEST))
    relief = _equalised(_mean3(distance).astype(np.uint8))
    relief = np.clip(_correlated3(relief.astype(np.int64), _RELIEF), 0, 255)
    water = levels * np.rint(_mean3(relief)).astype(np.float32)
    # An empty layer has no largest value to divide by.
    return water / np.maximum(water.max((1, 2), keepdims=True), 1)


def _correlated3(values: NDArray, kernel: tuple[tuple[int, ...], ...]) -> NDArray:
    height, width = values.shape[1:]
    wide = padded(padded(values, 1, 1, "whole_mirror"), 1, 2, "whole_mirror")
    return sum(  # type: ignore[return-value]
        weight * wide[:, i : i + height, j : j + width]
        for i, row in enumerate(kernel)
        for j, weight in enumerate(row)
        if weight
    )


def _mean3(values: NDArray) -> NDArray[np.float32]:
    return (_correlated3(values.astype(np.float64), ((1, 1, 1),) * 3) * (1 / 9)).astype(np.float32)


def _equalised(levels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Spread the levels so that each image's are as even as can be; the lowest becomes 0, a constant image stays.

    Level l becomes ``255 * (count(<= l) - first) / (pixels - first)``; ``first`` counts the lowest level's pixels.
    """
    images, pixels = len(levels), levels[0].size
    number = np.arange(images)[:, None]
    flat = levels.reshape(images, pixels)
    cumulative = np.bincount((number * 256 + flat).ravel(), minlength=images * 256).reshape(images, 256).cumsum(1)
    first = np.take_along_axis(cumulative, flat.min(1, keepdims=True).astype(np.intp), 1)
    scale = np.float32(255) / np.maximum(pixels - first, 1).astype(np.float32)
    table = np.rint(np.maximum(cumulative - first, 0).astype(np.float32) * scale).astype(np.uint8)
    table = np.where(first == pixels, np.arange(256, dtype=np.uint8), table)
    return table[number, flat].reshape(levels.shape)


SPATTER = Corruption(
    "spatter",
    {
        32: (
            (0.62, 0.1, 0.7, 0.7, 0.5, _WATER),
            (0.65, 0.1, 0.8, 0.7, 0.5, _WATER),
            (0.65, 0.3, 1, 0.69, 0.5, _WATER),
            (0.65, 0.1, 0.7, 0.69, 0.6, _MUD),
            (0.65, 0.1, 0.5, 0.68, 0.6, _MUD),
        ),
        64: (
            (0.62, 0.1, 0.7, 0.7, 0.6, _WATER),
            (0.65, 0.1, 0.8, 0.7, 0.6, _WATER),
            (0.65, 0.3, 1, 0.69, 0.6, _WATER),
            (0.65, 0.1, 0.7, 0.68, 0.6, _MUD),
            (0.65, 0.1, 0.5, 0.67, 0.6, _MUD),
        ),
        224: (
            (0.65, 0.3, 4, 0.69, 0.6, _WATER),
            (0.65, 0.3, 3, 0.68, 0.6, _WATER),
            (0.65, 0.3, 2, 0.68, 0.5, _WATER),
            (0.65, 0.3, 1, 0.65, 1.5, _MUD),
            (0.67, 0.4, 1, 0.65, 1.5, _MUD),
        ),
    },
    _apply,
    _draw,
)
