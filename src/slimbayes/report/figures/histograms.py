"""Histograms of entropy, one panel a method: right against wrong, and in against out of distribution."""

from itertools import pairwise
from typing import Any

import numpy as np

from slimbayes.report.comparison import Comparison
from slimbayes.report.figures.averages import found, numbers
from slimbayes.report.figures.drawing import Drawing
from slimbayes.report.figures.panels import Panels, short
from slimbayes.report.figures.style import MUTED, Series, series, styled
from slimbayes.report.figures.words import extremes, methods, number, percent

__all__ = ["entropy_of_errors", "out_of_distribution"]

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
    """Return for each new name the share of all seeds' examples in each bin; within their own bins they are even.

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
