"""Panels at fixed positions with a legend below, and what is drawn in them: lines with bands, and heat maps.

There is no layout engine, which would cost more than the drawing.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from slimbayes.report.figures._averages import Mean
from slimbayes.report.figures._style import MAP_COLOUR, Series, series

#: Inches: 720 pixels of the page.
WIDTH = 7.5
#: Mean width of a letter of the legend, and the width of a line with its marker and the space around.
_LETTER, _HANDLE = 0.075, 0.62


class Panels:
    """A figure with panels of one size.

    Args:
        count: How many.
        columns: At most how many in a row.
        height: Of one panel's axes, in inches.
        legend: Labels of a legend below; none if empty.
        looks: How each label's series looks; as ``series`` says by default.
        left: Room for labels at the left of each panel, in inches.
        top: Room above each panel: two lines of title by default.
        bottom: Room below each panel of the last row.
        between: Room below each panel of the other rows; as ``bottom`` by default.

    Attributes:
        figure: The ``matplotlib.figure.Figure``.
        axes: One for each panel.
    """

    def __init__(
        self,
        count: int,
        columns: int = 3,
        height: float = 1.7,
        *,
        legend: Sequence[str] = (),
        looks: Sequence[Series] | None = None,
        left: float = 0.6,
        top: float = 0.45,
        bottom: float = 0.42,
        between: float | None = None,
    ) -> None:
        from matplotlib.figure import Figure

        self.columns = min(columns, count)
        self.rows = math.ceil(count / self.columns)
        per_row = _per_row([short(one) for one in legend])
        lines = math.ceil(len(legend) / per_row)
        between = bottom if between is None else between
        below = 0.1 + 0.21 * lines if lines else 0.0
        row_height = top + height + between
        total = self.rows * row_height + bottom - between + below
        self.figure: Any = Figure(figsize=(WIDTH, total))
        each = (WIDTH - 0.12) / self.columns
        self.axes: list[Any] = []
        for index in range(count):
            row, column = divmod(index, self.columns)
            bottom_edge = total - row * row_height - top - height
            self.axes.append(
                self.figure.add_axes(
                    ((column * each + left) / WIDTH, bottom_edge / total, (each - left - 0.1) / WIDTH, height / total)
                )
            )
        if lines:
            self._legend(legend, looks or [series(index) for index in range(len(legend))], per_row)

    def _legend(self, labels: Sequence[str], looks: Sequence[Series], per_row: int) -> None:
        from matplotlib.lines import Line2D

        self.figure.legend(
            [Line2D([], [], **look.line) for look in looks],
            [short(label) for label in labels],
            loc="lower center",
            ncols=min(per_row, len(labels)),
            borderaxespad=0.2,
            borderpad=0.2,
            labelspacing=0.35,
            columnspacing=1.4,
            handlelength=2.6,
            handletextpad=0.5,
        )

    def outer(self, xlabel: str, ylabel: str) -> None:
        """Name the axes of the last row's panels and of each row's first, which have room for it."""
        for index, ax in enumerate(self.axes):
            if index // self.columns == self.rows - 1:
                ax.set_xlabel(xlabel)
            if index % self.columns == 0:
                ax.set_ylabel(ylabel)

    def ticks(self, across: int = 4, up: int = 4) -> None:
        """Keep ticks few: they are text, and text costs most."""
        for ax in self.axes:
            ax.locator_params(axis="x", nbins=across)
            ax.locator_params(axis="y", nbins=up)


def _per_row(labels: Sequence[str]) -> int:
    """Return how many columns of a legend fit; it is filled column by column, the first ones being the longest."""
    for rows in range(1, len(labels)):
        columns = math.ceil(len(labels) / rows)
        longest = [max(map(len, part)) for part in np.array_split(labels, columns)]
        if sum(_HANDLE + _LETTER * one for one in longest) <= WIDTH - 0.1:
            return columns
    return 1


def short(title: str, letters: int = 30) -> str:
    """Return a title that fits a panel, without its middle if it is too long.

    Example:
        >>> short("rank-1 normal (hidden=[64, 64], members=8)")
        'rank-1 normal …64], members=8)'
    """
    title = " ".join(title.split()).lstrip("_") or title
    if len(title) <= letters:
        return title
    head = (letters - 1) // 2  # similar names often differ at the end
    return f"{title[:head]}…{title[len(title) - (letters - 1 - head) :]}"


# ---------------------------------------------------------------------- lines


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


# ---------------------------------------------------------------------- heat maps


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
