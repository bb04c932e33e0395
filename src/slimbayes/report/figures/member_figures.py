"""Members: their disagreement against quality (Figure 6 of the rank-1 paper), by pairs, and draws of each (Table 8)."""

from typing import NamedTuple

import numpy as np

from slimbayes.report._wording import NONE, extremes, methods, number, percent
from slimbayes.report.comparison import Column, Comparison
from slimbayes.report.figures._averages import Mean, found, numbers
from slimbayes.report.figures._panels import Panels, draw_curve, draw_map, short
from slimbayes.report.figures._style import INK, Drawing, series, styled
from slimbayes.report.figures.under_shift import scores

__all__ = ["LAST", "diversity", "diversity_paths", "member_pairs", "samples_per_member"]

#: Epochs of a path at most, and never more than half: Figure 6 shows the end of training.
LAST = 20


class Point(NamedTuple):
    """A model's diversity and quality; the names say what of."""

    accuracy: float
    nll: float
    disagreement: float


class Path(NamedTuple):
    """The points of a run, one or one for each epoch."""

    seed: int | None
    points: list[Point]


@styled()
def diversity(comparison: Comparison) -> Drawing | None:
    """Draw normalised disagreement on test data against accuracy and NLL, a point for each seed."""
    paths: dict[str, list[Path]] = {}
    for title, one in comparison.titled():
        clean = one.result()["clean"]
        if point := _point(clean["scores"], (clean.get("diversity") or {}).get("normalised_disagreement")):
            paths.setdefault(title, []).append(Path(one.content.get("seed"), [point]))
    if not paths:
        return None
    return _drawing(
        comparison,
        paths,
        "diversity",
        "Diversity of members",
        "Disagreement of pairs of members on test data, divided by the members' error rate, against accuracy and NLL. "
        "One point is one seed. Up is more diverse; right in the first panel and left in the second is better.",
    )


@styled()
def diversity_paths(comparison: Comparison) -> Drawing | None:
    """Draw normalised disagreement on validation data over the last epochs, a path for each seed."""
    paths: dict[str, list[Path]] = {}
    for title, one in comparison.titled():
        epochs = [epoch["validation"] for epoch in one.content.get("training") or [] if epoch.get("validation")]
        path = [
            point
            for scores in epochs[-max(1, min(LAST, len(epochs) // 2)) :]
            if (point := _point(scores, _normalised(scores)))
        ]
        if len(path) > 1:
            paths.setdefault(title, []).append(Path(one.content.get("seed"), path))
    if not paths:
        return None
    return _drawing(
        comparison,
        paths,
        "diversity-paths",
        "Diversity towards the end of training",
        "Disagreement of pairs of members on validation data, divided by the members' error rate, against accuracy and "
        f"NLL over the second half of training, at most {LAST} epochs. One line is one seed; the marker is its last "
        "epoch.",
    )


def _drawing(comparison: Comparison, paths: dict[str, list[Path]], key: str, title: str, caption: str) -> Drawing:
    single = all(len(path.points) == 1 for seeds in paths.values() for path in seeds)
    looks = [series(comparison.titles.index(name)) for name in paths]
    looks = [look._replace(dash="") for look in looks] if single else looks
    panels = Panels(2, 2, height=2.4, legend=list(paths), looks=looks, top=0.15)
    table = [["Method", "Seed", "Epoch from the end", "Accuracy", "NLL", "Normalised disagreement"]]
    for look, (name, seeds) in zip(looks, paths.items(), strict=True):
        line = {**look.line, "markersize": 5.5}
        for ax, x in zip(panels.axes, ("accuracy", "nll"), strict=True):
            for path in seeds:
                ax.plot(
                    [getattr(point, x) for point in path.points],
                    [point.disagreement for point in path.points],
                    markevery=[len(path.points) - 1],
                    **{**line, "linewidth": 0.9},
                )
        table += [
            [name, NONE if path.seed is None else str(path.seed), str(len(path.points) - 1 - step), *map(number, point)]
            for path in seeds
            for step, point in enumerate(path.points)
        ]
    if single:
        table = [row[:2] + row[3:] for row in table]
    panels.ticks(5, 5)
    panels.outer("accuracy", "disagreement / members' error")
    panels.axes[1].set_xlabel("NLL")
    means = {name: sum(path.points[-1].disagreement for path in seeds) / len(seeds) for name, seeds in paths.items()}
    return Drawing(
        key,
        title,
        caption,
        f"Disagreement against accuracy and against NLL for {methods(len(paths))} with several members. "
        f"{extremes(means, 'normalised disagreement', None)}",
        panels.figure,
        table,
    )


def _point(scores: dict[str, float | None], disagreement: float | None) -> Point | None:
    accuracy, nll = scores.get("accuracy"), scores.get("nll")
    return None if accuracy is None or nll is None or disagreement is None else Point(accuracy, nll, disagreement)


def _normalised(scores: dict[str, float | None]) -> float | None:
    raw, accuracy = scores.get("disagreement"), scores.get("member_accuracy")
    return None if raw is None or accuracy is None or accuracy == 1 else raw / (1 - accuracy)


# ---------------------------------------------------------------------- pairs


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


# ---------------------------------------------------------------------- samples of each


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
    indices = [comparison.titles.index(title) for title in tried]
    looks = list(map(series, indices))
    panels = Panels(len(shown), height=1.5, legend=list(tried), looks=looks, top=0.28, bottom=0.45, between=0.25)
    for ax, column in zip(panels.axes, shown, strict=True):
        for index, (title, samples) in zip(indices, tried.items(), strict=True):
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
