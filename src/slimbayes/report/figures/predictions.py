"""How good predictions are: reliability, risk and coverage, intervals, and means against targets."""

import numpy as np

from slimbayes.report._wording import extremes, methods, number, percent
from slimbayes.report.comparison import Comparison
from slimbayes.report.figures._averages import found, mean_over_seeds, means, numbers, resampled
from slimbayes.report.figures._panels import Panels, draw_curve, short, thinned
from slimbayes.report.figures._style import MUTED, Drawing, series, styled

__all__ = ["interval_calibration", "mean_against_target", "reliability", "risk_coverage"]


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


# ---------------------------------------------------------------------- refusing the least sure


_SHOWN = tuple(range(10, 101, 10))


@styled()
def risk_coverage(comparison: Comparison) -> Drawing | None:
    """Draw the error among the most confident share of examples against that share."""
    curves = found(comparison, lambda one: one.result()["clean"].get("risk_coverage"))
    if not curves:
        return None
    indices = [comparison.titles.index(title) for title in curves]
    panels = Panels(1, height=2.6, legend=list(curves), looks=list(map(series, indices)), top=0.15)
    ax = panels.axes[0]
    table = [["Method", *(f"Error at {share}% coverage" for share in _SHOWN)]]
    for index, (title, seeds) in zip(indices, curves.items(), strict=True):
        coverage = numbers(seeds[0]["coverage"])
        coverage = coverage[coverage > 0]  # of no examples there is no share of errors
        mean = mean_over_seeds([resampled(coverage, one["coverage"], one["risk"]) for one in seeds])
        draw_curve(ax, coverage, mean, index, title, markers=8)
        table.append([title, *(percent(float(np.interp(share / 100, coverage, mean.mean))) for share in _SHOWN)])
    ax.set(
        xlim=(0, 1), xlabel="coverage: share of examples answered, the most confident first", ylabel="error among them"
    )
    ax.set_ylim(bottom=0)
    areas = means(comparison, curves, "aurc")
    return Drawing(
        "risk-coverage",
        "Risk and coverage",
        "Share of errors among the most confident examples, as more of them are answered; lower is better. "
        "Mean over seeds, with its standard error as a band.",
        f"Risk-coverage curves of {methods(len(curves))}. {extremes(areas, 'area under the curve')}",
        panels.figure,
        table,
    )


# ---------------------------------------------------------------------- real values


#: Points in all panels together, so that the figure stays small.
_POINTS = 720


@styled()
def interval_calibration(comparison: Comparison) -> Drawing | None:
    """Draw the share of targets inside central intervals against their nominal level."""
    curves = found(comparison, lambda one: one.result()["clean"].get("calibration"))
    if not curves:
        return None
    indices = [comparison.titles.index(title) for title in curves]
    panels = Panels(1, height=2.8, legend=list(curves), looks=list(map(series, indices)), top=0.15)
    ax = panels.axes[0]
    ax.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
    levels = numbers(next(iter(curves.values()))[0]["level"])
    table = [["Method", *(f"Coverage of {100 * level:.0f}% interval" for level in levels)]]
    gaps = {}
    for index, (title, seeds) in zip(indices, curves.items(), strict=True):
        mean = mean_over_seeds([resampled(levels, one["level"], one["coverage"]) for one in seeds])
        draw_curve(ax, levels, mean, index, title)
        table.append([title, *map(percent, mean.mean)])
        gaps[title] = float(np.abs(mean.mean - levels).mean())
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="level of the central interval", ylabel="share of targets inside")
    return Drawing(
        "interval-calibration",
        "Calibration of intervals",
        "Share of targets inside central prediction intervals against their level. Below the dotted diagonal, "
        "intervals are too narrow. Mean over seeds, with its standard error as a band.",
        f"Calibration curves of {methods(len(curves))}. {extremes(gaps, 'mean distance from the diagonal')}",
        panels.figure,
        table,
    )


@styled()
def mean_against_target(comparison: Comparison) -> Drawing | None:
    """Draw predicted means against targets with bars of one standard deviation; the first seed of each method."""
    points = {
        title: [numbers(seeds[0][key]) for key in ("target", "mean", "std")]
        for title, seeds in found(comparison, lambda one: one.result()["clean"].get("scatter")).items()
    }
    if not points:
        return None
    panels = Panels(len(points), height=1.8, between=0.3)
    ends = np.array([[target.min(), target.max()] for target, _, _ in points.values()])
    low, high = ends[:, 0].min(), ends[:, 1].max()
    margin = 0.05 * (high - low) or 1.0
    table = [["Method", "Target", "Mean", "Standard deviation"]]
    inside = {}
    for ax, (title, (target, mean, std)) in zip(panels.axes, points.items(), strict=True):
        inside[title] = float((np.abs(target - mean) <= std).mean())
        keep = thinned(len(target), max(40, _POINTS // len(points)))
        x, y, bar = target[keep], mean[keep], std[keep]
        ax.plot([low, high], [low, high], color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
        ax.vlines(x, y - bar, y + bar, color=series(0).colour, alpha=0.3, linewidth=0.9)
        ax.plot(x, y, "o", color=series(0).colour, markersize=2.2, markeredgewidth=0)
        ax.set_title(f"{short(title)}\n{percent(inside[title])} within one std")
        ax.set_xlim(low - margin, high + margin)
        table += [[title, *map(number, row)] for row in zip(x[:20], y[:20], bar[:20], strict=True)]
    panels.ticks(4, 4)
    panels.outer("target", "predicted mean")
    return Drawing(
        "mean-against-target",
        "Predictions and targets",
        "Predicted mean against target, with bars of one predicted standard deviation either side; a share of the test "
        "examples, one seed. A calibrated normal prediction has 68% of targets within its bars. "
        "The table has the first 20 of each.",
        f"Scatter plots of predicted mean against target, one panel for each of {methods(len(points))}. "
        f"{extremes(inside, 'share of targets within one standard deviation', None, True)}",
        panels.figure,
        table,
    )
