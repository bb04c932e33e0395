"""Scores against one of a method's options, such as k or the number of members."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from reproductions.show.base import OfStudy, Shown
from reproductions.show.columns import column
from reproductions.show.estimates import Estimate, estimate, row_title
from reproductions.show.pictures import linked, svg
from reproductions.stored import Sources
from slimbayes.report.figures._panels import Panels
from slimbayes.report.figures._style import MUTED, series, styled

__all__ = ["AgainstOption"]

Runs = Sequence[Mapping[str, Any]]


class AgainstOption(OfStudy):
    """One panel for each score; a method without the option is a level line."""

    option: str
    """Of the method, such as k or members."""
    part: str = "test"
    columns: list[str] = Field(min_length=1)
    """As for `table`."""
    lines: dict[str, list[str]] = Field(default_factory=dict)
    """Titles of lines, each with the methods on it; by default one line of all."""
    log: bool = False
    """Whether the option's scale is logarithmic."""

    def render(self, sources: Sources, stem: str) -> Shown:
        """Draw the scores."""
        runs = self.runs(sources)
        level = [run for run in runs if self.option not in run["config"]["method"]]
        lines = [self._line(runs, methods) for methods in (self.lines.values() or [None])]
        with styled():
            panels = Panels(len(self.columns), 3, 2.0, legend=list(self.lines) if len(self.lines) > 1 else (), top=0.3)
            for ax, name in zip(panels.axes, self.columns, strict=True):
                for position, line in enumerate(lines):
                    found = {at: self._estimate(line[at], name) for at in sorted(line)}
                    self._draw(ax, {at: one for at, one in found.items() if one}, position)
                if even := self._estimate(level, name):
                    ax.axhline(even.value, color=MUTED, linestyle=":", linewidth=1.0)
                ticks = sorted(set().union(*lines))
                if self.log:
                    ax.set_xscale("log")
                    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
                    ax.minorticks_off()
                else:
                    ax.set_xticks(ticks)
                ax.set_title(column(name).title)
            panels.outer(self.option.replace("_", " "), "")
            picture = svg(panels.figure)
        text = linked(f"{stem}.svg", f"Scores against {self.option}".replace("_", " "))
        over_seeds = any(len(some) > 1 for some in (*(one for line in lines for one in line.values()), level))
        note = "Mean ± standard error over seeds" if over_seeds else f"One seed: ± is over {self.part} examples"
        names = ", ".join(dict.fromkeys(row_title(run["method"]) for run in level))
        return Shown(f"{text}\n\n{note}{f'; dotted: {names}' if names else ''}.", {f"{stem}.svg": picture})

    def _line(self, runs: Runs, methods: Sequence[str] | None) -> dict[float, Runs]:
        by_value: dict[float, list[Mapping[str, Any]]] = {}
        for run in runs:
            value = run["config"]["method"].get(self.option)
            if value is not None and (methods is None or run["method"] in methods):
                by_value.setdefault(value, []).append(run)
        return dict(by_value)

    def _estimate(self, runs: Runs, name: str) -> Estimate | None:
        found = estimate(column(name).score(run, self.part) for run in runs)
        if found is None or not column(name).percent:
            return found
        return found._replace(value=100 * found.value, error=None if found.error is None else 100 * found.error)

    def _draw(self, ax: Any, found: Mapping[float, Estimate], position: int) -> None:
        errors = [one.error or 0.0 for one in found.values()]
        ax.errorbar(list(found), [one.value for one in found.values()], errors, capsize=2, **series(position).line)
