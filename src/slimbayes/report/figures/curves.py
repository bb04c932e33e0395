"""A line averaged over seeds, with its band."""

from typing import Any

import numpy as np

from slimbayes.report.figures.averages import Mean
from slimbayes.report.figures.style import series

__all__ = ["draw_curve", "thinned"]


def draw_curve(ax: Any, at: np.ndarray, mean: Mean, index: int, label: str, markers: int = 6) -> None:
    """Draw a mean over seeds and a band of one standard error either side.

    Args:
        ax: The axes.
        at: Where, ``(points,)``.
        mean: The curve.
        index: Number of the series.
        label: Its name.
        markers: About how many markers to put on the line.
    """
    there = np.isfinite(mean.mean)
    if not there.any():
        return
    at, middle, error = at[there], mean.mean[there], mean.error[there]
    step = max(1, len(at) // markers)
    # Series start their markers at different points, so that markers on lines that lie together stay apart.
    ax.plot(at, middle, markevery=(index % step, step), label=label, **series(index).line)
    if mean.banded:
        error = np.nan_to_num(error)
        ax.fill_between(at, middle - error, middle + error, color=series(index).colour, alpha=0.16, linewidth=0)


def thinned(length: int, most: int = 100) -> np.ndarray:
    """Return at most so many indices of a long curve, evenly apart, the first and the last among them.

    Example:
        >>> thinned(9, 3), len(thinned(5))
        (array([0, 4, 8]), 5)
    """
    return np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(int))
