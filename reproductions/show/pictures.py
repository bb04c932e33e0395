"""Figures as bytes: the same data give the same file."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from slimbayes.report._svg import FORMATS
from slimbayes.report.figures._style import LIGHT, styled

__all__ = ["linked", "log_scale", "mean_lines", "png", "svg", "whole_ticks"]


def svg(figure: Any) -> bytes:
    """Return a matplotlib figure as SVG, without dates and with its letters inside."""
    buffer = io.BytesIO()
    with styled(**{"svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata=FORMATS["svg"], facecolor=LIGHT["surface"])
    # Editors and hooks take blanks at the end of lines away.
    return b"\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + b"\n"


def png(figure: Any) -> bytes:
    """Return a matplotlib figure as PNG, for maps with thousands of cells."""
    buffer = io.BytesIO()
    with styled():
        figure.savefig(buffer, format="png", dpi=144, metadata={"Software": None}, facecolor=LIGHT["surface"])
    return buffer.getvalue()


def linked(name: str, alt: str) -> str:
    """Return the Markdown that shows a figure."""
    return f"![{alt}](figures/{name})"


def log_scale(ax: Any, least: float = 4.0) -> None:
    """Make the scale of y logarithmic, with ticks in plain numbers, if what is drawn spans at least this ratio."""
    from matplotlib.ticker import LogLocator, NullLocator

    low, high = ax.dataLim.intervaly
    if low <= 0 or high < least * low:
        return
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def whole_ticks(ax: Any) -> None:
    """Put the ticks of x at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def mean_lines(runs: Sequence[Mapping[str, Any]], x: str, y: str) -> tuple[list[float], list[list[float]]]:
    """Return where the curves of several seeds have points in common, and their values there.

    Args:
        runs: Stored runs, one for each seed.
        x: A key of the points: ``"step"``, or one that differs among seeds, whose mean is taken.
        y: A key of the points.

    Returns:
        Positions, and for each position the values of all seeds; points that a seed lacks are left out.

    Example:
        >>> curves = [[{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}], [{"step": 1, "loss": 3.0}]]
        >>> mean_lines([{"curve": curve} for curve in curves], "step", "loss")
        ([1.0], [[2.0, 3.0]])
    """
    curves = [{point["step"]: point for point in run["curve"] if point.get(y) is not None} for run in runs]
    if not curves:
        return [], []
    steps = sorted(set.intersection(*map(set, curves)))
    positions = [sum(float(curve[step][x]) for curve in curves) / len(curves) for step in steps]
    return positions, [[float(curve[step][y]) for curve in curves] for step in steps]
