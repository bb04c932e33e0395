"""How well each measure of uncertainty tells test examples from others."""

import numpy as np

from slimbayes.report.comparison import Comparison
from slimbayes.report.figures.averages import Mean, mean_over_seeds
from slimbayes.report.figures.drawing import Drawing
from slimbayes.report.figures.panels import Panels, short
from slimbayes.report.figures.style import series, styled
from slimbayes.report.figures.words import extremes, number
from slimbayes.report.figures.words import methods as how_many

__all__ = ["ood_measures"]

_NAMES = {
    "max_probability": "maximum probability",
    "entropy": "entropy",
    "mutual_information": "mutual information",
    "energy": "energy",
}


@styled()
def ood_measures(comparison: Comparison) -> Drawing | None:
    """Draw AUROC by method and measure, one panel for each out-of-distribution set."""
    areas = _areas(comparison)
    if not areas:
        return None
    measures = [name for name in _NAMES if any(name in cell for methods in areas.values() for cell in methods.values())]
    titles = [title for title in comparison.titles if any(title in methods for methods in areas.values())]
    margin = min(2.4, 0.35 + 0.083 * max(len(short(title)) for title in titles))
    columns = 1 if margin > 1.8 or len(areas) == 1 else 2
    panels = Panels(
        len(areas),
        columns,
        height=0.25 + 0.21 * len(titles),
        legend=[_NAMES[name] for name in measures],
        looks=[series(index)._replace(dash="") for index in range(len(measures))],
        left=margin,
        top=0.3,
        bottom=0.42,
    )
    table = [["Data", "Method", *(_NAMES[name] for name in measures)]]
    for ax, (data, methods) in zip(panels.axes, areas.items(), strict=True):
        for index, measure in enumerate(measures):
            at = [
                (row, methods[title][measure]) for row, title in enumerate(titles) if measure in methods.get(title, {})
            ]
            line = {**series(index).line, "linestyle": "", "markersize": 5}
            rows = np.array([row + 0.13 * (index - (len(measures) - 1) / 2) for row, _ in at])
            errors = [float(mean.error[0]) if mean.banded else 0.0 for _, mean in at]
            middles = np.array([float(mean.mean[0]) for _, mean in at])
            ax.errorbar(middles, rows, xerr=errors, elinewidth=0.8, label=measure, **line)
        table += [
            [data, title, *(number(cell[name].mean[0]) if name in cell else "–" for name in measures)]
            for title, cell in methods.items()
        ]
        ax.set_title(data)
        ax.set_yticks(range(len(titles)), [short(title) for title in titles])
        ax.set_ylim(len(titles) - 0.5, -0.5)
        ax.set_xlabel("AUROC")
        ax.locator_params(axis="x", nbins=5)
    best = {
        f"{title} by {_NAMES[measure]} on {data}": float(mean.mean[0])
        for data, methods in areas.items()
        for title, cell in methods.items()
        for measure, mean in cell.items()
    }
    return Drawing(
        "ood-measures",
        "Out-of-distribution detection",
        "Area under the ROC curve of each measure of uncertainty, test data against each other set; higher is better "
        "and 0.5 is chance. Mean over seeds, with its standard error as a bar.",
        f"Dots of AUROC for {how_many(len(titles))} by {len(measures)} measures on {', '.join(areas)}. "
        f"{extremes(best, 'AUROC', True)}",
        panels.figure,
        table,
    )


def _areas(comparison: Comparison) -> dict[str, dict[str, dict[str, Mean]]]:
    """Return the mean AUROC by data set, title and measure."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for title, one in comparison.titled():
        for data, record in one.result()["ood"].items():
            for measure, scores in record["measures"].items():
                if measure in _NAMES and (scores or {}).get("auroc") is not None:
                    cell = found.setdefault(data, {}).setdefault(title, {})
                    cell.setdefault(measure, []).append(scores["auroc"])
    return {
        data: {
            title: {measure: mean_over_seeds([[value] for value in values]) for measure, values in cell.items()}
            for title, cell in methods.items()
        }
        for data, methods in found.items()
    }
