"""Risk when the least sure predictions are refused."""

import numpy as np

from slimbayes.report.comparison import Comparison
from slimbayes.report.figures.averages import found, mean_over_seeds, means, numbers, resampled
from slimbayes.report.figures.curves import draw_curve
from slimbayes.report.figures.drawing import Drawing
from slimbayes.report.figures.panels import Panels
from slimbayes.report.figures.style import series, styled
from slimbayes.report.figures.words import extremes, methods, percent

__all__ = ["risk_coverage"]

_SHOWN = tuple(range(10, 101, 10))


@styled()
def risk_coverage(comparison: Comparison) -> Drawing | None:
    """Draw the error among the most confident share of examples against that share."""
    curves = found(comparison, lambda one: one.result()["clean"].get("risk_coverage"))
    if not curves:
        return None
    places = [comparison.titles.index(title) for title in curves]
    panels = Panels(1, height=2.6, legend=list(curves), looks=list(map(series, places)), top=0.15)
    ax = panels.axes[0]
    table = [["Method", *(f"Error at {share}% coverage" for share in _SHOWN)]]
    for index, (title, seeds) in zip(places, curves.items(), strict=True):
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
