"""Pixelation: fewer, larger pixels."""

import numpy as np
from numpy.typing import NDArray

from slimbayes.corruptions.base import Corruption, Images

__all__ = ["PIXELATE"]


def _apply(images: Images, factor: float) -> Images:
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
    _apply,
)
