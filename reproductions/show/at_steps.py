"""Figure 6, right, of the k-tied paper: the gradients' signal-to-noise ratio, or the -ELBO, at some steps."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from reproductions.show.base import OfStudy, Shown
from reproductions.show.columns import Column
from reproductions.show.estimates import Score, by_group, estimate, look_up
from reproductions.show.rows import Paper, compared
from reproductions.stored import Sources
from slimbayes._text_table import as_markdown

__all__ = ["AtSteps"]


class AtSteps(OfStudy):
    """Methods by steps."""

    quantity: str
    """snr, or a number of the curve such as negative_elbo."""
    steps: list[int] = Field(min_length=1)
    layer: str | None = None
    """Of snr: a layer; by default the whole model."""
    statistic: Literal["layer", "mean", "median"] = "layer"
    """Of a layer's snr: the ratio of the sums over its parameters, or the mean or median of their ratios."""
    paper: Paper = Field(default_factory=dict)
    """The paper's numbers by method, one for each step."""

    def render(self, sources: Sources, stem: str) -> Shown:
        """Return the table."""
        groups = by_group(self.runs(sources))
        found = {
            row: [estimate(self._score(run, step) for run in runs) for step in self.steps]
            for row, runs in groups.items()
        }
        seeds = {row: len(runs) for row, runs in groups.items()}
        columns = [Column(f"step {step:,}", ()) for step in self.steps]
        note = "\n\nMean ± standard error over seeds." if max(seeds.values(), default=0) > 1 else ""
        return Shown(compared(found, columns, self.paper, "method", seeds) + note)

    def unrun(self) -> str:
        """Return the paper's numbers."""
        if not self.paper:
            return ""
        rows = [[method, *map(str, numbers)] for method, numbers in self.paper.items()]
        return as_markdown([["method", *(f"step {step:,}, paper" for step in self.steps)], *rows])

    def _score(self, run: Mapping[str, Any], step: int) -> Score | None:
        if self.quantity != "snr":
            point: dict[str, Any] = next((point for point in run["curve"] if point["step"] == step), {})
            return look_up(point, [self.quantity])
        path = ["model"] if self.layer is None else ["layers", self.layer, self.statistic]
        return look_up(run, ["snr", str(step), *path])
