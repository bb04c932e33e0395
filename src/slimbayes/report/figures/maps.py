"""Heat maps in one colour, more or less opaque, that suit light pages and dark ones."""

from typing import Any

import numpy as np

from slimbayes.report.figures.palette import MAP_COLOUR

__all__ = ["draw_map"]

#: Opacity of the largest value: ink stays legible on it.
_MOST = 0.9
#: Opacities that differ, so that pictures stay small.
_LEVELS = 40


def draw_map(ax: Any, matrix: np.ndarray, low: float, high: float, most: float = _MOST) -> None:
    """Draw a matrix, ``low`` clear and ``high`` opaque, and take away the frame.

    Args:
        ax: The axes.
        matrix: Numbers ``(rows, columns)``; NaN is left clear.
        low: Value that is clear.
        high: Value that is opaque.
        most: Opacity of ``high``.
    """
    from matplotlib.colors import to_rgb

    parts = np.clip(np.nan_to_num((matrix - low) / ((high - low) or 1.0)), 0, 1)
    image = np.empty((*matrix.shape, 4))
    image[..., :3] = to_rgb(MAP_COLOUR)
    image[..., 3] = most * np.round(parts * _LEVELS) / _LEVELS
    ax.imshow(image, aspect="auto", interpolation="none")
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
