"""What uncertainty tells apart, right from wrong and known from unknown: histograms of entropy, AUROC of measures."""

from itertools import pairwise
from typing import Any

import numpy as np

from slimbayes.report._wording import extremes, methods, number, percent
from slimbayes.report.comparison import Comparison
from slimbayes.report.figures._averages import Mean, found, mean_over_seeds, numbers
from slimbayes.report.figures._panels import Panels, short
from slimbayes.report.figures._style import MUTED, Drawing, Series, series, styled

__all__ = ["entropy_of_errors", "ood_measures", "out_of_distribution"]

#: A histogram by name: shares of examples in each bin, the first drawn filled.
Shares = dict[str, np.ndarray]


@styled()
def entropy_of_errors(comparison: Comparison) -> Drawing | None:
    """Draw the entropy of right and of wrong predictions."""
    records = found(comparison, lambda one: (one.result()["clean"].get("uncertainty") or {}).get("entropy"))
    if not records:
        return None
    edges = common_edges([one for seeds in records.values() for one in seeds])
    panels = {title: shares(seeds, {"right": "right", "wrong": "wrong"}, edges) for title, seeds in records.items()}
    gaps = {title: _mean(edges, bins["wrong"]) - _mean(edges, bins["right"]) for title, bins in panels.items()}
    figure, table = _draw(panels, edges)
    return Drawing(
        "entropy-of-errors",
        "Entropy of right and wrong predictions",
        "Share of the right predictions (filled) and of the wrong ones (line) by predictive entropy, in nats; "
        "each adds up to one. Apart is good. Seeds are pooled. Panels share the axis of entropy only.",
        f"Histograms of entropy, one panel for each of {methods(len(panels))}. "
        f"{extremes(gaps, 'mean entropy of wrong minus that of right predictions', True)}",
        figure,
        table,
    )


@styled()
def out_of_distribution(comparison: Comparison) -> Drawing | None:
    """Draw the entropy of test examples and of each out-of-distribution set."""
    sets = list(dict.fromkeys(name for one in comparison.evaluations for name in one.result()["ood"]))
    records = {
        name: found(comparison, lambda one, name=name: _entropy(one.result()["ood"], name))  # type: ignore[misc]
        for name in sets
    }
    every = [one for titles in records.values() for seeds in titles.values() for one in seeds]
    if not every:
        return None
    edges = common_edges(every)
    panels: dict[str, Shares] = {}
    for title in comparison.titles:
        for name in sets:
            if seeds := records[name].get(title):
                known = panels.setdefault(title, {})
                known |= {
                    key: bins
                    for key, bins in shares(seeds, {"in": "test data", "out": name}, edges).items()
                    if key not in known
                }
    figure, table = _draw(panels, edges)
    found_scores = {title: _area(comparison, title, sets) for title in panels}
    return Drawing(
        "out-of-distribution",
        "Entropy in and out of distribution",
        "Share of the test examples (filled) and of each out-of-distribution set (lines) by predictive entropy, in "
        "nats; each adds up to one. Apart is good. Seeds are pooled. Panels share the axis of entropy only.",
        f"Histograms of entropy on the test data and on {', '.join(sets)}, one panel for each of "
        f"{methods(len(panels))}. {extremes(found_scores, 'mean AUROC of entropy', True)}",
        figure,
        table,
    )


def common_edges(records: list[dict[str, Any]]) -> np.ndarray:
    """Return edges of bins for histograms whose own edges differ, as many as the first has.

    Example:
        >>> common_edges([{"edges": [0, 1, 2]}, {"edges": [1, 2, 3]}])
        array([0. , 1.5, 3. ])
    """
    own = [numbers(one["edges"]) for one in records]
    if all(np.array_equal(edges, own[0]) for edges in own) and own[0][-1] > own[0][0]:
        return own[0]
    low, high = min(edges[0] for edges in own), max(edges[-1] for edges in own)
    return np.linspace(low, high, len(own[0])) if high > low else np.linspace(low - 0.5, high + 0.5, len(own[0]))


def shares(seeds: list[dict[str, Any]], names: dict[str, str], edges: np.ndarray) -> Shares:
    """Return for each new name the share of all seeds' examples in each bin; within a bin they count as evenly spread.

    Example:
        >>> one, other = {"edges": [0, 1, 2], "in": [3, 1]}, {"edges": [1, 2, 3], "in": [2, 2]}
        >>> shares([one, other], {"in": "test"}, np.array([0.0, 1.5, 3.0]))
        {'test': array([0.5625, 0.4375])}
    """
    counts = {
        new: np.sum([_rebinned(numbers(one[old]), numbers(one["edges"]), edges) for one in seeds], 0)
        for old, new in names.items()
    }
    return {name: count / max(count.sum(), 1) for name, count in counts.items()}


def _rebinned(counts: np.ndarray, edges: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    if np.array_equal(edges, wanted):
        return counts
    return np.diff(np.interp(wanted, edges, np.concatenate([[0], np.cumsum(counts)])))


def _draw(histograms: dict[str, Shares], edges: np.ndarray) -> tuple[Any, list[list[str]]]:
    names = list(dict.fromkeys(name for bins in histograms.values() for name in bins))
    looks = [Series(MUTED, "s", "", 0.4)] + [series(index)._replace(marker="") for index in range(len(names) - 1)]
    panels = Panels(len(histograms), height=1.3, legend=names, looks=looks, top=0.28, bottom=0.4, between=0.25)
    table = [["Method", "Entropy from", "to", *names]]
    for ax, (title, bins) in zip(panels.axes, histograms.items(), strict=True):
        for name, share in bins.items():
            look = looks[names.index(name)]
            if name == names[0]:
                ax.stairs(share, edges, fill=True, color=look.colour, alpha=0.3, linewidth=0)
            else:
                ax.stairs(share, edges, color=look.colour, linestyle=look.dash, linewidth=1.3)
        top = max(share.max() for share in bins.values())
        ax.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.05 * top or 1), title=short(title))
        table += [
            [title, number(low), number(high), *(percent(bins[name][bar]) if name in bins else "" for name in names)]
            for bar, (low, high) in enumerate(pairwise(edges))
            if any(share[bar] for share in bins.values())
        ]
    panels.ticks(4, 3)
    panels.outer("entropy", "share")
    return panels.figure, table


def _entropy(sets: dict[str, Any], name: str) -> dict[str, Any] | None:
    return (sets.get(name) or {}).get("histograms", {}).get("entropy")


def _mean(edges: np.ndarray, share: np.ndarray) -> float:
    return float(((edges[1:] + edges[:-1]) / 2 * share).sum()) if share.any() else float("nan")


def _area(comparison: Comparison, title: str, sets: list[str]) -> float | None:
    found_areas = [
        area
        for one in comparison.groups[title]
        for name in sets
        if (area := one.result()["ood"].get(name, {}).get("measures", {}).get("entropy", {}).get("auroc")) is not None
    ]
    return sum(found_areas) / len(found_areas) if found_areas else None


# ---------------------------------------------------------------------- each measure


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
    measures = [name for name in _NAMES if any(name in cell for cells in areas.values() for cell in cells.values())]
    titles = [title for title in comparison.titles if any(title in cells for cells in areas.values())]
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
    for ax, (data, cells) in zip(panels.axes, areas.items(), strict=True):
        for index, measure in enumerate(measures):
            at = [(row, cells[title][measure]) for row, title in enumerate(titles) if measure in cells.get(title, {})]
            line = {**series(index).line, "linestyle": "", "markersize": 5}
            rows = np.array([row + 0.13 * (index - (len(measures) - 1) / 2) for row, _ in at])
            errors = [float(mean.error[0]) if mean.banded else 0.0 for _, mean in at]
            middles = np.array([float(mean.mean[0]) for _, mean in at])
            ax.errorbar(middles, rows, xerr=errors, elinewidth=0.8, label=measure, **line)
        table += [
            [data, title, *(number(cell[name].mean[0]) if name in cell else "–" for name in measures)]
            for title, cell in cells.items()
        ]
        ax.set_title(data)
        ax.set_yticks(range(len(titles)), [short(title) for title in titles])
        ax.set_ylim(len(titles) - 0.5, -0.5)
        ax.set_xlabel("AUROC")
        ax.locator_params(axis="x", nbins=5)
    best = {
        f"{title} by {_NAMES[measure]} on {data}": float(mean.mean[0])
        for data, cells in areas.items()
        for title, cell in cells.items()
        for measure, mean in cell.items()
    }
    return Drawing(
        "ood-measures",
        "Out-of-distribution detection",
        "Area under the ROC curve of each measure of uncertainty, test data against each other set; higher is better "
        "and 0.5 is chance. Mean over seeds, with its standard error as a bar.",
        f"Dots of AUROC for {methods(len(titles))} by {len(measures)} measures on {', '.join(areas)}. "
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
            for title, cell in cells.items()
        }
        for data, cells in found.items()
    }
