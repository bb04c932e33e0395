"""Digital changes: brightness, contrast, saturation, elastic transform, pixelation and JPEG compression."""

from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimbayes.shifts.corruptions._ops import (
    Corruption,
    Draws,
    Images,
    border_index,
    gaussian_filter,
    unit_interval,
    whole_levels,
)

__all__ = [
    "BRIGHTNESS",
    "CONTRAST",
    "ELASTIC_TRANSFORM",
    "JPEG_COMPRESSION",
    "PIXELATE",
    "SATURATE",
    "hsv_of_rgb",
    "rgb_of_hsv",
]


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


ElasticConstants = tuple[float, float, float]
Floats = NDArray[np.floating]

#: The original warps on a grid of 1/32 pixel, from linear parts that are rounded to 1/1024 pixel.
_FINE, _COARSE = 1024, 32
_TRUNCATE = 3.0


def _draw_elastic(random: np.random.Generator, image: Images, constants: ElasticConstants) -> Draws:
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


def _elastic(images: Images, constants: ElasticConstants, moves: Floats, right: Floats, down: Floats) -> Images:
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


def _of_244(*severities: ElasticConstants) -> tuple[ElasticConstants, ...]:
    """The original takes its fractions of 244 pixels where it means 224."""
    return tuple((alpha * 244 / 224, sigma * 244 / 224, furthest * 244 / 224) for alpha, sigma, furthest in severities)


ELASTIC_TRANSFORM = Corruption(
    "elastic_transform",
    {
        32: ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        64: ((0, 0, 0.08), (0.05, 0.3, 0.06), (0.1, 0.08, 0.06), (0.1, 0.03, 0.03), (0.16, 0.03, 0.02)),
        224: _of_244((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)),
    },
    _elastic,
    _draw_elastic,
)


def _pixelate(images: Images, factor: float) -> Images:
    """Reduce to ``floor(side * factor)`` pixels by means over cells, across and then down, and enlarge again.

    A cell's mean is that of the pixels whose centre it holds (its upper end is its own, its lower end is not), rounded
    half up in either direction. Pixel j of the result shows the cell in which its centre lies.
    """
    side = images.shape[1]
    cells = max(int(side * factor), 1)
    odd = 2 * np.arange(side) + 1
    cell_of_pixel = -(-odd * cells // (2 * side)) - 1
    starts = np.searchsorted(cell_of_pixel, np.arange(cells))
    sizes = np.bincount(cell_of_pixel)
    shown = odd * cells // (2 * side)

    def reduced(levels: NDArray[np.integer], axis: int) -> NDArray[np.integer]:
        shape = [1] * 4
        shape[axis] = cells
        count = sizes.reshape(shape)
        return (2 * np.add.reduceat(levels, starts, axis) + count) // (2 * count)

    small = reduced(reduced(images.astype(np.int32), 2), 1).astype(np.uint8)
    return small[:, shown][:, :, shown]


PIXELATE = Corruption(
    "pixelate",
    {32: (0.95, 0.9, 0.85, 0.75, 0.65), 64: (0.9, 0.8, 0.7, 0.6, 0.5), 224: (0.6, 0.5, 0.4, 0.3, 0.25)},
    _pixelate,
)


def _jpeg(images: Images, quality: int) -> Images:
    """Encode each image with that quality and chroma of half the resolution, and decode it.

    Pixels depend on the codec: Pillow's today is libjpeg-turbo, the original's was IJG libjpeg 9, and the two are about
    one grey level apart; the statistics agree.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError('The corruption jpeg_compression needs pillow: pip install "slimbayes[report]"') from error

    result = np.empty_like(images)
    for one, target in zip(images, result, strict=True):
        file = BytesIO()
        Image.fromarray(one.squeeze(-1) if one.shape[-1] == 1 else one).save(
            file, "JPEG", quality=quality, subsampling="4:2:0"
        )
        target[:] = np.asarray(Image.open(file)).reshape(one.shape)
    return result


JPEG_COMPRESSION = Corruption(
    "jpeg_compression",
    {32: (80, 65, 58, 50, 40), 64: (65, 58, 50, 40, 25), 224: (25, 18, 15, 10, 7)},
    _jpeg,
)
