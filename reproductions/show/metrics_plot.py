"""Figures 6 to 8 and 10 to 12 of the rank-1 paper: scores against severity of corruption, or against each other."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from reproductions.show.base import Kind, Shown, picked
from reproductions.show.columns import column
from reproductions.show.estimates import Estimate, Score, by_group, estimate, look_up, row_title
from reproductions.show.pictures import linked, svg
from reproductions.stored import Sources
from slimbayes.report.figures._panels import Panels
from slimbayes.report.figures._style import series, styled

__all__ = ["MetricsPlot"]

Runs = Sequence[Mapping[str, Any]]


class MetricsPlot(Kind):
    """One panel for each score that ``slimbayes evaluate`` measured."""

    study: str | list[str]
    methods: list[str] | None = None
    """Which methods; by default all."""
    x: str = "severity"
    """`severity`, with clean examples at 0; or another score, with a point for each run."""
    checkpoints: bool = False
    """A point for each epoch that was validated, instead of each run; of studies whose `look.evaluate` has `epochs`."""
    y: list[str] = Field(min_length=1)
    """Scores: against severity nll, accuracy and ece."""
    statistic: Literal["mean", "median"] = "mean"
    """Over types of corruption."""

    def needs(self) -> list[str]:
        """Return the studies."""
        return [self.study] if isinstance(self.study, str) else self.study

    def render(self, sources: Sources, stem: str) -> Shown:
        """Draw the scores."""
        groups = by_group(run for study in self.needs() for run in picked(sources, study, self.methods))
        with styled():
            panels = Panels(len(self.y), 3, 2.2, legend=[row_title(row) for row in groups])
            for ax, name in zip(panels.axes, self.y, strict=True):
                for position, runs in enumerate(groups.values()):
                    (self._by_severity if self.x == "severity" else self._by_run)(ax, runs, name, position)
                ax.set_title(column(name).title)
            panels.outer(column(self.x).title.replace("_", " "), "")
            picture = svg(panels.figure)
        text = linked(f"{stem}.svg", f"{', '.join(self.y)} against {self.x}".replace("_", " "))
        return Shown(f"{text}\n\n{self._note()}", {f"{stem}.svg": picture})

    def _by_severity(self, ax: Any, runs: Runs, name: str, position: int) -> None:
        found = severities(runs, name, self.statistic)
        ax.set_xticks(range(6))
        scale = _scale(name)
        values = [scale * one.value for one in found.values()]
        ax.errorbar(
            list(found),
            values,
            [scale * (one.error or 0.0) for one in found.values()],
            capsize=2,
            **series(position).line,
        )

    def _by_run(self, ax: Any, runs: Runs, name: str, position: int) -> None:
        points = [
            (_scale(self.x) * across.value, _scale(name) * up.value)
            for run in (checkpoints(runs) if self.checkpoints else runs)
            for across, up in [(_score(run, self.x), _score(run, name))]
            if across is not None and up is not None and across.value is not None and up.value is not None
        ]
        if points:
            ax.plot(*zip(*points, strict=True), **{**series(position).line, "linestyle": ""})

    def _note(self) -> str:
        if self.checkpoints:
            return "A point for each epoch that was validated, on the validation examples."
        if self.x != "severity":
            return "A point for each run."
        return (
            f"{self.statistic.capitalize()} over types of corruption, then mean ± standard error over seeds; 0: clean."
        )


def severities(runs: Runs, name: str, statistic: str) -> dict[int, Estimate]:
    """Return a score at each severity that all runs have, mean over runs; 0 stands for the clean examples.

    Example:
        >>> run = {"evaluation": {"nll": 0.1, "by_severity": {"5": {"nll": {"mean": 0.5, "median": 0.4, "std": None}}}}}
        >>> {severity: one.value for severity, one in severities([run], "nll", "median").items()}
        {0: 0.1, 5: 0.4}
    """
    levels = set.intersection(*(set(run["evaluation"].get("by_severity", {})) for run in runs))
    found = {0: estimate(_score(run, name) for run in runs)}
    for level in sorted(levels, key=int):
        path = ("evaluation", "by_severity", level, name, statistic)
        found[int(level)] = estimate(look_up(run, path) for run in runs)
    return {level: one for level, one in found.items() if one is not None}


def checkpoints(runs: Runs) -> list[dict[str, Any]]:
    """Return the validation scores of each epoch as if they were those of a run.

    Example:
        >>> epoch = {"validation": {"nll": 0.3, "disagreement": 0.1, "member_accuracy": 0.8}}
        >>> (found,) = checkpoints([{"evaluation": {"epochs": [epoch, {"validation": None}]}}])
        >>> round(found["evaluation"]["normalised_disagreement"], 3)
        0.5
    """
    found = []
    for one in (epoch["validation"] for run in runs for epoch in run["evaluation"].get("epochs", [])):
        if one is not None:
            error = 1 - one.get("member_accuracy", 1.0)
            apart = {"normalised_disagreement": one["disagreement"] / error} if error else {}
            found.append({"evaluation": {**one, **apart}})
    return found


def _score(run: Mapping[str, Any], name: str) -> Score | None:
    return column(name).score(run, "evaluation")


def _scale(name: str) -> float:
    return 100.0 if column(name).percent else 1.0
