"""Disagreement of each pair of members."""

import numpy as np

from slimbayes.report.comparison import Comparison
from slimbayes.report.figures.averages import found, numbers
from slimbayes.report.figures.drawing import Drawing
from slimbayes.report.figures.maps import draw_map
from slimbayes.report.figures.panels import Panels, short
from slimbayes.report.figures.style import INK, styled
from slimbayes.report.figures.words import extremes, methods, percent

__all__ = ["member_pairs"]

#: More members than this have no room for numbers in cells.
_WRITTEN = 6
#: Opacity of the largest value, low enough to write on.
_MOST = 0.6


@styled()
def member_pairs(comparison: Comparison) -> Drawing | None:
    """Draw a heat map of disagreement between members, one panel a method; the mean over seeds."""
    pairs = {}
    for title, seeds in found(
        comparison, lambda one: (one.result()["clean"].get("diversity") or {}).get("pairs")
    ).items():
        matrices = [np.array([numbers(row) for row in one]) for one in seeds]
        matrices = [one for one in matrices if np.isfinite(_off_diagonal(one)).any()]
        if not matrices:
            continue
        pairs[title] = np.mean([one for one in matrices if one.shape == matrices[0].shape], 0)
    if not pairs:
        return None
    panels = Panels(len(pairs), height=1.75, left=0.45, top=0.45, bottom=0.42, between=0.25)
    high = max(float(np.nanmax(_off_diagonal(matrix))) for matrix in pairs.values()) or 1.0
    table = [["Method", "Member", "Other member", "Disagreement"]]
    means = {}
    for ax, (title, matrix) in zip(panels.axes, pairs.items(), strict=True):
        others = _off_diagonal(matrix)
        means[title] = float(np.nanmean(others))
        draw_map(ax, others, 0, high, _MOST)
        members = len(matrix)
        ticks = range(members) if members <= 10 else range(0, members, members // 5)
        ax.set_xticks(ticks, [str(one + 1) for one in ticks])
        ax.set_yticks(ticks, [str(one + 1) for one in ticks])
        ax.set_title(f"{short(title)}\nmean {percent(means[title])}")
        above = [(row, column) for row in range(members) for column in range(row + 1, members)]
        table += [[title, str(row + 1), str(column + 1), percent(matrix[row, column])] for row, column in above]
        if members <= _WRITTEN:
            for row, column in above + [(column, row) for row, column in above]:
                ax.text(column, row, percent(matrix[row, column])[:-1], ha="center", va="center", color=INK, fontsize=8)
    panels.outer("member", "member")
    return Drawing(
        "member-pairs",
        "Pairs of members",
        "Share of test examples, in per cent, on which two members name different classes; stronger colour is more. "
        "All panels share one scale. Mean over seeds.",
        f"Heat maps of disagreement between members for {methods(len(pairs))}. "
        f"{extremes(means, 'mean disagreement', None, True)}",
        panels.figure,
        table,
    )


def _off_diagonal(matrix: np.ndarray) -> np.ndarray:
    return np.where(np.eye(len(matrix), dtype=bool), np.nan, matrix)
