"""Scores by number of draws of each member: Table 8 of the rank-1 paper."""

import numpy as np

from slimbayes.report.comparison import Column, Comparison
from slimbayes.report.figures.averages import Mean
from slimbayes.report.figures.curves import draw_curve
from slimbayes.report.figures.drawing import Drawing
from slimbayes.report.figures.panels import Panels
from slimbayes.report.figures.shifts import scores
from slimbayes.report.figures.style import series, styled
from slimbayes.report.figures.words import extremes, methods, number

__all__ = ["samples_per_member"]


@styled()
def samples_per_member(comparison: Comparison) -> Drawing | None:
    """Draw clean scores, and those under corruption if there are some, against samples per member."""
    tried = {
        title: sorted(set.intersection(*(set(one.samples) for one in group)))
        for title, group in comparison.groups.items()
    }
    tried = {title: samples for title, samples in tried.items() if len(samples) > 1}
    keys = [score.key for score in scores(comparison)]
    columns = {column.key: column for column in comparison.columns}
    shown = [columns[key] for key in [*keys, *(f"c{key}" for key in keys)] if key in columns]
    shown = [column for column in shown if any(_curve(comparison, title, column, tried[title]) for title in tried)]
    if not shown:
        return None
    places = [comparison.titles.index(title) for title in tried]
    looks = list(map(series, places))
    panels = Panels(len(shown), height=1.5, legend=list(tried), looks=looks, top=0.28, bottom=0.45, between=0.25)
    for ax, column in zip(panels.axes, shown, strict=True):
        for index, (title, samples) in zip(places, tried.items(), strict=True):
            if mean := _curve(comparison, title, column, samples):
                draw_curve(ax, np.log2(samples), mean, index, title, markers=len(samples))
        every = sorted({one for samples in tried.values() for one in samples})
        ax.set_xticks(np.log2(every), map(str, every))
        ax.set_title(f"{column.title} ({'higher' if column.higher else 'lower'} is better)", fontsize=9)
        ax.locator_params(axis="y", nbins=4)
    panels.outer("samples per member", "")
    table = [["Method", "Samples per member", *(column.title for column in shown)]]
    for title, samples in tried.items():
        for one in samples:
            found = [comparison.figure(title, column.key, one) for column in shown]
            table.append([title, str(one), *(number(figure.mean if figure else None) for figure in found)])
    gains = {
        title: float(mean.mean[0] - mean.mean[-1])
        for title, samples in tried.items()
        if (mean := _curve(comparison, title, shown[0], samples))
    }
    return Drawing(
        "samples",
        "Samples per member",
        "Scores by the number of draws of each member's weights. Mean over seeds, with its standard error as a band.",
        f"Curves of {', '.join(column.title for column in shown)} against samples per member for "
        f"{methods(len(tried))}. {extremes(gains, f'fall of {shown[0].title} from fewest to most samples', True)}",
        panels.figure,
        table,
    )


def _curve(comparison: Comparison, title: str, column: Column, samples: list[int]) -> Mean | None:
    found = [comparison.figure(title, column.key, one) for one in samples]
    figures = [figure for figure in found if figure]
    if len(figures) < len(samples):
        return None
    errors = [np.nan if figure.error is None else figure.error for figure in figures]
    return Mean(np.array([figure.mean for figure in figures]), np.array(errors), figures[0].seeds)
