"""Scores by severity of corruption: Figures 7 and 8 of the rank-1 paper."""

import numpy as np

from slimbayes.report.comparison import Comparison
from slimbayes.report.figures.drawing import Drawing
from slimbayes.report.figures.panels import Panels
from slimbayes.report.figures.shifts import scores, shifted, types
from slimbayes.report.figures.style import series, styled
from slimbayes.report.figures.words import extremes, methods, number

__all__ = ["FRACTION", "severity_curves"]

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
