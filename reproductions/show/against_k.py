"""Scores against k, the rank of the standard deviations."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from reproductions.show.base import OfStudy, Shown
from reproductions.show.columns import column
from reproductions.show.estimates import Estimate, estimate
from reproductions.show.pictures import linked, svg
from reproductions.stored import Sources
from slimbayes.report.figures._panels import Panels
from slimbayes.report.figures._style import MUTED, series, styled

__all__ = ["AgainstK"]


class AgainstK(OfStudy):
    """One panel for each score; mean-field, where it was run, is a level line."""

    part: str = "test"
    columns: list[str] = Field(min_length=1)
    """As for `table`."""

    def render(self, sources: Sources, stem: str) -> Shown:
        """Draw the scores."""
        by_k: dict[int, list[Mapping[str, Any]]] = {}
        untied: list[Mapping[str, Any]] = []
        for run in self.runs(sources):
            method = run["config"]["method"]
            if method["name"] == "k_tied":
                by_k.setdefault(int(method["k"]), []).append(run)
            elif method["name"] == "mean_field":
                untied.append(run)
        with styled():
            panels = Panels(len(self.columns), 3, 2.0, top=0.3)
            for ax, name in zip(panels.axes, self.columns, strict=True):
                found = {k: self._estimate(by_k[k], name) for k in sorted(by_k)}
                self._draw(ax, {k: one for k, one in found.items() if one}, self._estimate(untied, name))
                ax.set_title(column(name).title)
            panels.outer("k", "")
            picture = svg(panels.figure)
        text = linked(f"{stem}.svg", "Scores against k")
        over_seeds = any(len(runs) > 1 for runs in (*by_k.values(), untied))
        note = "Mean ± standard error over seeds" if over_seeds else f"One seed: ± is over {self.part} examples"
        return Shown(f"{text}\n\n{note}{'; dotted: mean-field' if untied else ''}.", {f"{stem}.svg": picture})

    def _estimate(self, runs: Sequence[Mapping[str, Any]], name: str) -> Estimate | None:
        found = estimate(column(name).score(run, self.part) for run in runs)
        if found is None or not column(name).percent:
            return found
        return found._replace(value=100 * found.value, error=None if found.error is None else 100 * found.error)

    def _draw(self, ax: Any, found: Mapping[int, Estimate], untied: Estimate | None) -> None:
        errors = [one.error or 0.0 for one in found.values()]
        ax.errorbar(list(found), [one.value for one in found.values()], errors, capsize=2, **series(0).line)
        if untied is not None:
            ax.axhline(untied.value, color=MUTED, linestyle=":", linewidth=1.0)
        ax.set_xticks(list(found))
