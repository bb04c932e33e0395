"""Scores under corruption and shift: by severity (rank-1 paper, Figures 7 and 8), and over types (Figures 10 to 12)."""

from typing import Any, NamedTuple

import numpy as np

from slimbayes.evaluation.record import Evaluation
from slimbayes.report._wording import extremes, methods, number
from slimbayes.report.comparison import Comparison
from slimbayes.report.figures._panels import Panels
from slimbayes.report.figures._style import INK, SURFACE, Drawing, Series, series, styled

__all__ = ["FRACTION", "Score", "scores", "severity_curves", "shifted", "type_boxes", "types"]


class Score(NamedTuple):
    """A score that figures under shift show.

    Attributes:
        key: Its name in the file.
        title: What axes call it.
        higher: Whether more is better.
    """

    key: str
    title: str
    higher: bool


def scores(comparison: Comparison) -> tuple[Score, ...]:
    """Return the three scores of the papers' figures, or those that correspond for real targets."""
    if comparison.regression:
        return Score("nll", "NLL", False), Score("rmse", "RMSE", False), Score("crps", "CRPS", False)
    return Score("nll", "NLL", False), Score("accuracy", "Accuracy", True), Score("ece", "ECE", False)


def shifted(comparison: Comparison, key: str) -> dict[str, dict[int, np.ndarray]]:
    """Return, for each title and severity, a score of each type ``(types,)``, each the mean over seeds.

    Titles without corrupted results are left out.
    """
    result = {}
    for title, group in comparison.groups.items():
        cells: dict[tuple[int, str], list[float]] = {}
        for one in group:
            for name, severity, found in one.corrupted():
                if (value := found.get(key)) is not None:
                    cells.setdefault((severity, name), []).append(value)
        if cells:
            severities = sorted({severity for severity, _ in cells})
            result[title] = {
                severity: np.array([np.mean(values) for (at, _), values in cells.items() if at == severity])
                for severity in severities
            }
    return result


def types(comparison: Comparison) -> int:
    """Return the largest number of types that an evaluation has."""
    return max(map(_types, comparison.evaluations))


def _types(one: Evaluation) -> int:
    return len(one.result()["corrupted"])


# ---------------------------------------------------------------------- by severity


#: Of the standard deviation over types, shown as an error bar: whole ones would hide each other, as the paper says.
FRACTION = 0.25


@styled()
def severity_curves(comparison: Comparison) -> Drawing | None:
    """Draw each score against severity, 0 being clean: the mean over types and seeds."""
    found = {score: shifted(comparison, score.key) for score in scores(comparison)}
    found = {score: values for score, values in found.items() if values}
    if not found:
        return None
    titles = [title for title in comparison.titles if any(title in values for values in found.values())]
    looks = [series(comparison.titles.index(title)) for title in titles]
    panels = Panels(len(found), height=2.2, legend=titles, looks=looks, top=0.3)
    table = [
        ["Method", "Severity", *(f"{score.title} {part}" for score in found for part in ("mean", "std over types"))]
    ]
    rows: dict[tuple[str, int], list[str]] = {}
    hardest: dict[str, float | None] = {}
    worst = max(max(severities) for values in found.values() for severities in values.values())
    first = next(iter(found))
    for ax, (score, values) in zip(panels.axes, found.items(), strict=True):
        for index, title in enumerate(titles):
            severities = values.get(title, {})
            clean = comparison.figure(title, score.key)
            points = [(0, clean.mean, 0.0)] if clean else []
            points += [(severity, float(cell.mean()), float(cell.std())) for severity, cell in severities.items()]
            at, mean, spread = np.array(points).reshape(-1, 3).T
            dodge = 0.3 * ((index + 0.5) / len(titles) - 0.5)
            ax.errorbar(
                at + dodge, mean, FRACTION * spread, elinewidth=0.8, capsize=0, label=title, **looks[index].line
            )
            for severity, value, std in points:
                rows.setdefault((title, severity), []).extend([number(value), number(std if severity else None)])
            if score is first:
                hardest[title] = {severity: value for severity, value, _ in points}.get(worst)
        ax.set_title(f"{score.title} ({'higher' if score.higher else 'lower'} is better)", fontsize=9)
        ax.set_xticks(range(worst + 1))
        ax.set_xlabel("severity")
        ax.locator_params(axis="y", nbins=5)
    table += [[title, str(severity), *cells] for (title, severity), cells in rows.items()]
    kind = "shift" if comparison.regression else "corruption"
    return Drawing(
        "severity",
        f"Scores by severity of {kind}",
        f"Mean over seeds and {types(comparison)} types of {kind}, severity 0 being the clean test data. Error bars "
        "are a quarter of the standard deviation over types either side, as whole ones would hide each other. "
        "Markers are moved apart sideways.",
        f"Lines of {', '.join(score.title for score in found)} against severity 0 to {worst} for "
        f"{methods(len(titles))}. {extremes(hardest, f'{first.title} at severity {worst}')}",
        panels.figure,
        table,
    )


# ---------------------------------------------------------------------- over types


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
