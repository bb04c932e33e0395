"""Reliability diagrams."""

import numpy as np

from slimbayes.report.comparison import Comparison
from slimbayes.report.figures.averages import found, means, numbers
from slimbayes.report.figures.drawing import Drawing
from slimbayes.report.figures.panels import Panels, short
from slimbayes.report.figures.style import MUTED, series, styled
from slimbayes.report.figures.words import extremes, methods, number, percent

__all__ = ["reliability"]


@styled()
def reliability(comparison: Comparison) -> Drawing | None:
    """Draw accuracy against confidence, one panel a method; seeds are pooled bin by bin."""
    bins = {
        title: pooled(curves)
        for title, curves in found(comparison, lambda one: one.result()["clean"].get("reliability")).items()
    }
    if not bins:
        return None
    panels = Panels(len(bins), height=1.8, between=0.3)
    table = [["Method", "Confidence from", "to", "Mean confidence", "Accuracy", "Share of examples"]]
    errors = means(comparison, bins, "ece")
    for ax, (title, (edges, confidence, accuracy, share)) in zip(panels.axes, bins.items(), strict=True):
        full = share > 0
        ax.stairs(share, edges, fill=True, color=MUTED, alpha=0.22, linewidth=0)
        ax.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
        ax.vlines(confidence[full], confidence[full], accuracy[full], color=series(1).colour, alpha=0.45, linewidth=3)
        ax.plot(confidence[full], accuracy[full], **series(0).line)
        ax.set(xlim=(0, 1), ylim=(0, 1.02), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
        ax.set_title(f"{short(title)}\nECE {number(errors[title])}")
        table += [
            [title, *(number(one) for one in (low, high, sure, right)), percent(part)]
            for low, high, sure, right, part in zip(edges[:-1], edges[1:], confidence, accuracy, share, strict=True)
            if part > 0
        ]
    panels.outer("confidence", "accuracy")
    gaps = {title: float((share * (sure - right))[share > 0].sum()) for title, (_, sure, right, share) in bins.items()}
    unsure = sum(gap < 0 for gap in gaps.values())
    return Drawing(
        "reliability",
        "Reliability",
        "Accuracy against mean confidence in 15 bins of equal width; on the dotted diagonal confidence is right. Thick "
        "bars are the gap, grey columns the share of examples in each bin. Seeds are pooled.",
        f"Reliability diagrams, one panel for each of {methods(len(bins))}. {extremes(errors, 'ECE')} "
        f"Confidence is above accuracy on average for {len(bins) - unsure} and below it for {unsure}.",
        panels.figure,
        table,
    )


def pooled(curves: list[dict[str, list[float | None]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return edges, mean confidence, accuracy and share of examples of the bins, all seeds taken together.

    Example:
        >>> one = {"edges": [0, 0.5, 1], "confidence": [None, 0.8], "accuracy": [None, 0.5], "count": [0, 4]}
        >>> two = {"edges": [0, 0.5, 1], "confidence": [0.4, 0.9], "accuracy": [0.5, 1.0], "count": [2, 4]}
        >>> pooled([one, two])[1:]
        (array([0.4 , 0.85]), array([0.5 , 0.75]), array([0.2, 0.8]))
    """
    counts = np.array([numbers(curve["count"]) for curve in curves])
    total = counts.sum(0)
    safe = np.where(total > 0, total, np.nan)
    confidence, accuracy = (
        np.nansum(counts * np.array([numbers(curve[key]) for curve in curves]), 0) / safe
        for key in ("confidence", "accuracy")
    )
    return numbers(curves[0]["edges"]), confidence, accuracy, total / max(total.sum(), 1)
