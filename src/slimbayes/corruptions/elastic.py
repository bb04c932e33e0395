"""Elastic transform: a random affine map, then small smooth displacements."""

import numpy as np
from numpy.typing import NDArray

from slimbayes.corruptions.base import Corruption, Draws, Images
from slimbayes.corruptions.filters import border_index, gaussian_filter
from slimbayes.corruptions.pixels import unit_interval, whole_levels

__all__ = ["ELASTIC_TRANSFORM"]

Constants = tuple[float, float, float]
Floats = NDArray[np.floating]

#: The original warps on a grid of 1/32 pixel, from linear parts that are rounded to 1/1024 pixel.
_FINE, _COARSE = 1024, 32
_TRUNCATE = 3.0


def _draw(random: np.random.Generator, image: Images, constants: Constants) -> Draws:
    side = len(image)
    furthest = constants[2] * side
    moves = random.uniform(-furthest, furthest, (3, 2)).astype(np.float32)
    return moves, random.uniform(-1, 1, (side, side)), random.uniform(-1, 1, (side, side))


def _inverse_maps(moves: Floats, side: int) -> Floats:
    """Affine maps ``(n, 2, 3)`` from pixels (x, y) of the result to pixels of the image.

    They undo the maps that move three corners of the square of half-width ``side // 3`` about the centre by ``moves``.
    """
    centre, half = side // 2, max(side // 3, 1)
    corners = np.array([[half, half], [half, -half], [-half, -half]]) + centre
    sources = np.column_stack([corners, np.ones(3)])
    moved = (corners.astype(np.float32) + moves).astype(np.float64)
    forward = np.swapaxes(np.linalg.inv(sources) @ moved, 1, 2)
    square = np.tile(np.eye(3), (len(moves), 1, 1))
    square[:, :2] = forward
    return np.linalg.inv(square)[:, :2]


def _warped(values: Floats, maps: Floats) -> Floats:
    """Read each pixel where its affine map points, on the original's grid, by bilinear interpolation."""
    side = values.shape[1]
    pixels = np.arange(side)
    along_columns = np.rint(maps[:, :, 0, None] * pixels * _FINE).astype(np.int64)
    along_rows = np.rint((maps[:, :, 1, None] * pixels + maps[:, :, 2, None]) * _FINE).astype(np.int64)
    half_step = _FINE // _COARSE // 2
    steps = (along_columns[:, :, None, :] + along_rows[:, :, :, None] + half_step) // (_FINE // _COARSE)
    whole, share = steps // _COARSE, (steps % _COARSE / np.float32(_COARSE)).astype(np.float32)
    return _bilinear(values, whole[:, 1], whole[:, 0], share[:, 1], share[:, 0])


def _displaced(values: Floats, down: Floats, right: Floats) -> Floats:
    """Read each pixel at ``(row + down, column + right)``, beyond the border by a half-sample mirror.

    As in the original (a defect of old SciPy), the mirror is applied to the coordinate and not to its two neighbours:
    of a coordinate that lands within one pixel outside, the neighbour outside is mirrored without repeating the edge.
    """
    side = values.shape[1]
    pixels = np.arange(side)

    def split(coordinates: Floats) -> tuple[NDArray[np.intp], Floats]:
        folded = coordinates % (2 * side)
        folded = np.where(folded >= side, 2 * side - 1 - folded, folded)
        whole = np.floor(folded)
        return whole.astype(np.intp), folded - whole

    (rows, below), (columns, beside) = split(pixels[:, None] + down), split(pixels + right)
    return _bilinear(values, rows, columns, below, beside)


def _bilinear(values: Floats, rows: NDArray, columns: NDArray, below: Floats, beside: Floats) -> Floats:
    """Values ``(n, side, side, channels)`` between pixels (row, column) and (row + 1, column + 1)."""
    side = values.shape[1]
    upper, lower = (border_index(rows + i, side, "whole_mirror") * side for i in (0, 1))
    left, right = (border_index(columns + i, side, "whole_mirror") for i in (0, 1))
    first = np.arange(len(values)).reshape(-1, 1, 1) * side * side
    flat = values.reshape(-1, values.shape[-1])
    above, apart = 1 - below, 1 - beside
    return (
        flat[first + upper + left] * (above * apart)[..., None]
        + flat[first + upper + right] * (above * beside)[..., None]
        + flat[first + lower + left] * (below * apart)[..., None]
        + flat[first + lower + right] * (below * beside)[..., None]
    )


def _apply(images: Images, constants: Constants, moves: Floats, right: Floats, down: Floats) -> Images:
    """Warp by a random affine map, then displace by ``alpha * G(sigma)(U(-1, 1))`` in either direction.

    The constants alpha, sigma and the furthest move of a corner are fractions of the side.
    """
    side = images.shape[1]
    alpha, sigma = constants[0] * side, constants[1] * side
    values = _warped(unit_interval(images, np.float32), _inverse_maps(moves, side))
    if alpha:
        down, right = (
            (gaussian_filter(field, sigma, _TRUNCATE, "half_mirror") * alpha).astype(np.float32).astype(np.float64)
            for field in (down, right)
        )
        values = _displaced(values, down, right).astype(np.float32)
    return whole_levels(values)


def _of_244(*severities: Constants) -> tuple[Constants, ...]:
    """The original takes its fractions of 244 pixels where it means 224."""
    return tuple((alpha * 244 / 224, sigma * 244 / 224, furthest * 244 / 224) for alpha, sigma, furthest in severities)


ELASTIC_TRANSFORM = Corruption(
    "elastic_transform",
    {
        32: ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        64: ((0, 0, 0.08), (0.05, 0.3, 0.06), (0.1, 0.08, 0.06), (0.1, 0.03, 0.03), (0.16, 0.03, 0.02)),
        224: _of_244((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)),
    },
    _apply,
    _draw,
)
