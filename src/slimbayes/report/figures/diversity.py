"""Disagreement of members against how well they do: Figure 6 of the rank-1 paper."""

from typing import NamedTuple

from slimbayes.report.comparison import Comparison
from slimbayes.report.figures.drawing import Drawing
from slimbayes.report.figures.panels import Panels
from slimbayes.report.figures.style import series, styled
from slimbayes.report.figures.words import NONE, extremes, methods, number

__all__ = ["LAST", "diversity", "diversity_paths"]

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
