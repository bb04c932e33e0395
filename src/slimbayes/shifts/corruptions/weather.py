"""Weather: snow, frost, fog, and spatter (drops of water or flecks of mud on the lens)."""

from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimbayes.shifts.corruptions._ops import (
    Corruption,
    Draws,
    Images,
    centre_zoom,
    gaussian_filter,
    line_blur,
    padded,
    unit_interval,
    whole_levels,
)

__all__ = [
    "FOG",
    "FROST",
    "SNOW",
    "SPATTER",
    "canny_edges",
    "chamfer_distance",
    "frost_photograph",
    "plasma",
    "plasma_side",
]

#: Mean and standard deviation of the layer, its zoom, the threshold of a flake, radius and sigma of its streak, and the
#: share of the image that is not whitened.
SnowConstants = tuple[float, float, float, float, float, float, float]

_STEEPEST, _FLATTEST = -135, -45


def _draw_snow(random: np.random.Generator, image: Images, constants: SnowConstants) -> Draws:
    layer = random.normal(constants[0], constants[1], image.shape[:2])
    return layer, np.asarray(random.uniform(_STEEPEST, _FLATTEST))


def _snow(images: Images, constants: SnowConstants, layers: NDArray[np.float64], angles: NDArray[np.float64]) -> Images:
    """``kept * x + (1 - kept) * max(x, 1.5 grey + 0.5)``, plus the flakes, plus the flakes rotated by 180 degrees.

    Flakes are what is above the threshold in an enlarged layer of normal noise, smeared along a steep line.
    """
    _, _, zoom, threshold, radius, sigma, kept = constants
    layers = centre_zoom(layers, zoom)
    flakes = unit_interval(line_blur(whole_levels(np.where(layers < threshold, 0, layers)), radius, sigma, angles))
    values = unit_interval(images, np.float32)
    red, green, blue = np.moveaxis(values, -1, 0)
    grey = (0.299 * red + 0.587 * green + 0.114 * blue)[..., None]
    whitened = kept * values + (1 - kept) * np.maximum(values, grey * 1.5 + 0.5)
    return whole_levels(whitened + flakes[..., None] + flakes[:, ::-1, ::-1, None])


SNOW = Corruption(
    "snow",
    {
        32: (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        64: (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.8),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.8),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.65),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
        ),
        224: (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    },
    _snow,
    _draw_snow,
)


#: The original draws from five files of which the second and third show the same photograph; the package holds it once.
#: Its last file, frost5.jpg, is the original's sixth, which is never drawn.
_DRAWN_FILES = ("frost1.jpg", "frost2.jpg", "frost2.jpg", "frost3.jpg", "frost4.jpg")


@cache
def _full_photograph(file: str) -> NDArray[np.uint8]:
    try:
        from PIL import Image

        folder = files("torch_uncertainty_assets.frost")
    except ImportError as error:
        raise ImportError(
            "The corruption frost needs the photographs of torch-uncertainty-assets, and pillow to read them: "
            'pip install torch-uncertainty-assets pillow, or pip install "slimbayes[report]"'
        ) from error
    with folder.joinpath(file).open("rb") as stream:
        return np.asarray(Image.open(stream).convert("RGB"))


def _interpolated(photograph: NDArray[Any], factor: float, axis: int) -> NDArray[np.float64]:
    """Linear interpolation with half-pixel centres and no low-pass filter."""
    length = photograph.shape[axis]
    positions = np.clip((np.arange(round(length * factor)) + 0.5) / factor - 0.5, 0, length - 1)
    before = np.minimum(positions.astype(np.intp), length - 2)
    share = (positions - before).reshape([-1 if i == axis else 1 for i in range(3)])
    return photograph.take(before, axis) * (1 - share) + photograph.take(before + 1, axis) * share


@cache
def frost_photograph(index: int, reduction: float, side: int) -> NDArray[np.uint8]:
    """One of the five photographs that are drawn, ``(height, width, 3)``.

    Args:
        index: 0 to 4.
        reduction: Height and width as a share of the file's; more if an image would not fit in.
        side: Of the images that a crop is to cover.
    """
    photograph = _full_photograph(_DRAWN_FILES[index])
    factor = max(reduction, (side + 1) / min(photograph.shape[:2]))
    if factor == 1:
        return photograph
    return np.rint(_interpolated(_interpolated(photograph, factor, 0), factor, 1)).astype(np.uint8)


def _draw_frost(random: np.random.Generator, image: Images, constants: tuple[float, float, float]) -> Draws:
    index, side = int(random.integers(len(_DRAWN_FILES))), len(image)
    height, width, _ = frost_photograph(index, constants[2], side).shape
    return (np.array([index, random.integers(height - side), random.integers(width - side)]),)


def _frost(images: Images, constants: tuple[float, float, float], positions: NDArray[np.integer]) -> Images:
    """``kept * image + added * F`` in grey levels, F a crop of a photograph at a random position."""
    kept, added, reduction = constants
    pixels = np.arange(images.shape[1])
    rows, columns = positions[:, 1, None, None] + pixels[:, None], positions[:, 2, None, None] + pixels
    result = np.empty_like(images)
    for index in np.unique(positions[:, 0]):
        here = positions[:, 0] == index
        crop = frost_photograph(int(index), reduction, len(pixels))[rows[here], columns[here]]
        result[here] = np.clip(kept * images[here] + added * crop, 0, 255).astype(np.uint8)
    return result


def _with_reduction(reduction: float, *severities: tuple[float, float]) -> tuple[tuple[float, float, float], ...]:
    return tuple((kept, added, reduction) for kept, added in severities)


FROST = Corruption(
    "frost",
    {
        32: _with_reduction(0.2, (1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        64: _with_reduction(0.3, (1, 0.3), (0.9, 0.4), (0.8, 0.45), (0.75, 0.5), (0.7, 0.55)),
        224: _with_reduction(1, (1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    },
    _frost,
    _draw_frost,
)


def _draw_fog(random: np.random.Generator, image: Images, constants: tuple[float, float]) -> Draws:
    return (random.random(plasma_side(len(image)) ** 2 - 1),)


def _fog(images: Images, constants: tuple[float, float], uniforms: NDArray[np.float64]) -> Images:
    """``(x + density * P) * m / (m + density)``, P a fractal and m the largest value of the image."""
    density, decay = constants
    side = images.shape[1]
    values = unit_interval(images)
    largest = values.max((1, 2, 3), keepdims=True)
    values += density * plasma(uniforms, decay)[:, :side, :side, None]
    return whole_levels(values * largest / (largest + density))


FOG = Corruption(
    "fog",
    {
        32: ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        64: ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
        224: ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    },
    _fog,
    _draw_fog,
)


_FIRST_AMPLITUDE = 100.0


def plasma_side(side: int) -> int:
    """The side of the fractal that covers an image: the next power of two.

    >>> plasma_side(32), plasma_side(224)
    (32, 256)
    """
    return 1 << (side - 1).bit_length()


def plasma(uniforms: NDArray[Any], decay: float) -> NDArray[np.float64]:
    """Heights by the periodic diamond-square algorithm, scaled to the unit interval.

    Each step halves the grid. It fills the centres of the squares and then the middles of their horizontal and of their
    vertical edges, each with the mean of its four neighbours (the torus wraps) plus ``w * U(-w, w)``. The amplitude w
    begins at 100 and each step divides it by ``decay``.

    Args:
        uniforms: ``(n, N * N - 1)`` numbers between 0 and 1, N a power of two, in the order in which points are filled.
        decay: How much smoother small scales are than large ones.

    Returns:
        ``(n, N, N)``, each field with minimum 0 and maximum 1.

    >>> plasma(np.array([[0.5, 0.25, 1.0]]), decay=2.0).tolist()
    [[[0.3333333333333333, 0.0], [1.0, 0.3333333333333333]]]
    """
    images, side = len(uniforms), round((uniforms.shape[1] + 1) ** 0.5)
    heights = np.zeros((images, side, side))
    step, amplitude, used = side, _FIRST_AMPLITUDE, 0

    def filled(sums: NDArray[Any]) -> NDArray[Any]:
        nonlocal used
        count = sums[0].size
        noise = 2 * amplitude * uniforms[:, used : used + count] - amplitude
        used += count
        return sums / 4 + amplitude * noise.reshape(sums.shape)

    while step >= 2:
        whole, half = slice(0, side, step), slice(step // 2, side, step)
        corners, centres = heights[:, whole, whole], heights[:, half, half]
        across = corners + np.roll(corners, -1, 2)
        centres[:] = filled(across + np.roll(across, -1, 1))
        heights[:, whole, half] = filled(across + (centres + np.roll(centres, 1, 1)))
        down = corners + np.roll(corners, -1, 1)
        heights[:, half, whole] = filled(down + (centres + np.roll(centres, 1, 2)))
        step, amplitude = step // 2, amplitude / decay
    heights -= heights.min((1, 2), keepdims=True)
    return heights / np.maximum(heights.max((1, 2), keepdims=True), np.finfo(float).tiny)


#: Mean and standard deviation of the layer, sigma of its blur, threshold, strength of water or sigma of mud, and kind.
SpatterConstants = tuple[float, float, float, float, float, int]
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


def _draw_spatter(random: np.random.Generator, image: Images, constants: SpatterConstants) -> Draws:
    return (random.normal(constants[0], constants[1], image.shape[:2]),)


def _spatter(images: Images, constants: SpatterConstants, normals: Floats) -> Images:
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
    _spatter,
    _draw_spatter,
)


#: tan(22.5 degrees) with 15 bits, as in OpenCV; tan(67.5 degrees) is 2 more.
_TANGENT_BITS = 15
_TANGENT = 13573
_NEIGHBOURS = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]


def canny_edges(levels: NDArray[np.uint8], low: int, high: int) -> NDArray[np.bool_]:
    """Where the grey level changes most (Canny 1986).

    The gradient is that of 3x3 Sobel filters (border replicated), its size ``|gx| + |gy|``. A pixel is a candidate if
    the size is above ``low`` and a maximum along the nearest of four directions; candidates are edges if 8-connected
    candidates lead to one whose size is above ``high``.

    Args:
        levels: ``(n, side, side)``.
        low: Lower threshold on the gradient's size.
        high: Upper threshold on the gradient's size.

    >>> step = np.zeros((1, 4, 6), np.uint8)
    >>> step[..., 3:] = 100
    >>> canny_edges(step, 50, 150)[0, 0].tolist()
    [False, False, True, False, False, False]
    """
    across, down = _sobel(levels)
    size = np.abs(across) + np.abs(down)
    candidates = (size > low) & _is_ridge(size, across, down)
    edges = candidates & (size > high)
    while True:
        grown = edges.copy()
        for neighbour in _around(edges):
            grown |= neighbour
        grown &= candidates
        if np.array_equal(grown, edges):
            return edges
        edges = grown


def _sobel(levels: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    wide = padded(padded(levels.astype(np.int64), 1, 1, "replicate"), 1, 2, "replicate")
    smooth_rows = wide[:, :-2] + 2 * wide[:, 1:-1] + wide[:, 2:]
    smooth_columns = wide[:, :, :-2] + 2 * wide[:, :, 1:-1] + wide[:, :, 2:]
    return smooth_rows[:, :, 2:] - smooth_rows[:, :, :-2], smooth_columns[:, 2:] - smooth_columns[:, :-2]


def _is_ridge(size: NDArray[np.int64], across: NDArray[np.int64], down: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the size is larger than at the neighbours on both sides; ties favour the upper or left pixel."""
    nw, n, ne, w, e, sw, s, se = _around(size)
    x, y = np.abs(across), np.abs(down) << _TANGENT_BITS
    flat = y < _TANGENT * x
    steep = y > _TANGENT * x + (x << (_TANGENT_BITS + 1))
    rising = (across ^ down) < 0
    diagonal = np.where(rising, (size > ne) & (size > sw), (size > nw) & (size > se))
    return np.where(flat, (size > w) & (size >= e), np.where(steep, (size > n) & (size >= s), diagonal))


def _around(values: NDArray[Any]) -> list[NDArray[Any]]:
    """The eight neighbours of each pixel, row by row; 0 beyond the border."""
    height, width = values.shape[1:]
    wide = np.pad(values, ((0, 0), (1, 1), (1, 1)))
    return [wide[:, 1 + i : 1 + i + height, 1 + j : 1 + j + width] for i, j in _NEIGHBOURS]


#: Costs of a step, of a diagonal step and of a knight's move, with 16 bits after the point as in OpenCV.
_COST_BITS = 16
_STEP, _DIAGONAL, _KNIGHT = (round(cost * (1 << _COST_BITS)) for cost in (1, 1.4, 2.1969))
_FAR = np.iinfo(np.int64).max // 4
_MARGIN = 2


def chamfer_distance(marked: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The length of the shortest path of steps (1), diagonal steps (1.4) and knight's moves (2.1969) to a marked pixel.

    Two passes over the rows find it (Borgefors 1986, 5x5 mask): downwards from the upper left, then back. Within a row,
    ``d[j] = min(t[j], d[j - 1] + 1)`` is a running minimum of ``t[j] - j``.

    Args:
        marked: ``(n, height, width)``.

    Returns:
        Distances of the same shape, huge where nothing is marked.

    >>> marked = np.zeros((1, 3, 4), bool)
    >>> marked[0, 0, 0] = True
    >>> chamfer_distance(marked)[0].astype(float).round(1).tolist()
    [[0.0, 1.0, 2.0, 3.0], [1.0, 1.4, 2.2, 3.2], [2.0, 2.2, 2.8, 3.6]]
    """
    distance = np.where(marked, 0, _FAR)
    for direction in (slice(None), slice(None, None, -1)):
        _pass_down(distance[:, direction, direction])
    return (distance / (1 << _COST_BITS)).astype(np.float32)


def _pass_down(distance: NDArray[np.int64]) -> None:
    images, height, width = distance.shape
    along = np.arange(width) * _STEP
    above = np.full((2, images, width + 2 * _MARGIN), _FAR)
    for row in range(height):
        best = distance[:, row]
        nearer, farther = above[row % 2 - 1], above[row % 2]
        for values, offset, cost in (
            (farther, -1, _KNIGHT),
            (farther, 1, _KNIGHT),
            (nearer, -2, _KNIGHT),
            (nearer, -1, _DIAGONAL),
            (nearer, 0, _STEP),
            (nearer, 1, _DIAGONAL),
            (nearer, 2, _KNIGHT),
        ):
            np.minimum(best, values[:, _MARGIN + offset : _MARGIN + offset + width] + cost, out=best)
        best[:] = np.minimum.accumulate(best - along, axis=1) + along
        farther[:, _MARGIN:-_MARGIN] = best
