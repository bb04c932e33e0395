"""Plasma fractals: random heights on a torus, rough at every scale."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["plasma", "plasma_side"]

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
