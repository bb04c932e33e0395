"""Predictions of real values: calibration of intervals, and means against targets."""

import numpy as np

from slimbayes.report.comparison import Comparison
from slimbayes.report.figures.averages import found, mean_over_seeds, numbers, resampled
from slimbayes.report.figures.curves import draw_curve, thinned
from slimbayes.report.figures.drawing import Drawing
from slimbayes.report.figures.panels import Panels, short
from slimbayes.report.figures.style import MUTED, series, styled
from slimbayes.report.figures.words import extremes, methods, number, percent

__all__ = ["interval_calibration", "mean_against_target"]

#: Points in all panels together, so that the figure stays small.
_POINTS = 720


@styled()
def interval_calibration(comparison: Comparison) -> Drawing | None:
    """Draw the share of targets inside central intervals against their nominal level."""
    curves = found(comparison, lambda one: one.result()["clean"].get("calibration"))
    if not curves:
        return None
    places = [comparison.titles.index(title) for title in curves]
    panels = Panels(1, height=2.8, legend=list(curves), looks=list(map(series, places)), top=0.15)
    ax = panels.axes[0]
    ax.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
    levels = numbers(next(iter(curves.values()))[0]["level"])
    table = [["Method", *(f"Coverage of {100 * level:.0f}% interval" for level in levels)]]
    gaps = {}
    for index, (title, seeds) in zip(places, curves.items(), strict=True):
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
