"""Box plots over types of corruption: Figures 10 to 12 of the rank-1 paper."""

from typing import Any

import numpy as np

from slimbayes.report.comparison import Comparison
from slimbayes.report.figures.drawing import Drawing
from slimbayes.report.figures.panels import Panels
from slimbayes.report.figures.shifts import scores, shifted, types
from slimbayes.report.figures.style import INK, SURFACE, Series, series, styled
from slimbayes.report.figures.words import extremes, methods, number

__all__ = ["type_boxes"]

#: Least, lower quartile, median, upper quartile, most.
_QUANTILES = (0, 0.25, 0.5, 0.75, 1)


@styled()
def type_boxes(comparison: Comparison) -> Drawing | None:
    """Draw a box over types for each method and severity, one row of boxes for each score."""
    found = {score: shifted(comparison, score.key) for score in scores(comparison)}
    found = {score: values for score, values in found.items() if values}
    if not found or types(comparison) < 3:
        return None
    titles = [title for title in comparison.titles if any(title in values for values in found.values())]
    looks = [series(comparison.titles.index(title)) for title in titles]
    panels = Panels(len(found), 1, height=1.65, legend=titles, looks=looks, top=0.3, bottom=0.4, between=0.25)
    table = [["Score", "Severity", "Method", "Least", "Lower quartile", "Median", "Upper quartile", "Most"]]
    medians: dict[str, float | None] = {}
    first = next(iter(found))
    for ax, (score, values) in zip(panels.axes, found.items(), strict=True):
        step = 0.8 / len(titles)
        severities = sorted({severity for cells in values.values() for severity in cells})
        for index, title in enumerate(titles):
            cells = values.get(title, {})
            if not cells:
                continue
            boxes = np.array([np.quantile(cell, _QUANTILES) for cell in cells.values()])
            at = np.array([severities.index(severity) for severity in cells]) + (index + 0.5) * step - 0.4
            _draw_boxes(ax, at, boxes, 0.8 * step, looks[index], title)
            if score is first:
                medians[title] = float(boxes[-1, 2])
            table += [
                [score.title, str(severity), title, *map(number, box)]
                for severity, box in zip(cells, boxes, strict=True)
            ]
        ax.set_title(f"{score.title} ({'higher' if score.higher else 'lower'} is better)", fontsize=9)
        ax.set_xticks(range(len(severities)), map(str, severities))
        ax.set_xlim(-0.5, len(severities) - 0.5)
        ax.grid(visible=False, axis="x")
        ax.locator_params(axis="y", nbins=5)
    panels.axes[-1].set_xlabel("severity")
    worst = table[-1][1]
    kind = "shift" if comparison.regression else "corruption"
    return Drawing(
        "type-boxes",
        f"Spread over types of {kind}",
        f"Each box holds the middle half of {types(comparison)} types of {kind}, the marker is the median, and "
        "whiskers reach the least and the most. Each type's score is the mean over seeds.",
        f"Box plots over types of {kind} for {methods(len(titles))} at each severity. "
        f"{extremes(medians, f'median {first.title} at severity {worst}')}",
        panels.figure,
        table,
    )


def _draw_boxes(ax: Any, at: np.ndarray, boxes: np.ndarray, width: float, look: Series, label: str) -> None:
    """Draw all boxes of a method as three artists, for hundreds of them would be slow and large."""
    low, lower, median, upper, high = boxes.T
    ax.vlines(at, low, high, color=look.colour, linewidth=0.8)
    ax.bar(at, upper - lower, width, lower, color=look.colour, linewidth=0)
    ax.plot(at, median, look.marker, color=SURFACE, markeredgecolor=INK, markeredgewidth=0.4, markersize=3, label=label)
