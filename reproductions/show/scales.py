"""Figure 10 of the k-tied paper: the mean standard deviation of each layer over training."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from reproductions.show.base import OfStudy, Shown
from reproductions.show.estimates import Score, as_words, estimate
from reproductions.show.pictures import linked, log_scale, svg
from reproductions.stored import Sources
from slimbayes._text_table import as_markdown
from slimbayes.report.figures._panels import Panels
from slimbayes.report.figures._style import GRID, series, styled

__all__ = ["Scales"]


class Scales(OfStudy):
    """One line for each layer; grey is the part of training over which the KL is annealed linearly."""

    methods: list[str] | None = Field(default_factory=lambda: ["mean_field"])
    layers: list[str] | None = None
    """Layers to show; by default all that were stored. The study says what they are called."""

    def render(self, sources: Sources, stem: str) -> Shown:
        """Draw the lines and tell the last values."""
        runs = [run for run in self.runs(sources) if any(point.get("scales") for point in run["curve"])]
        if not runs:
            return Shown("No standard deviations over training were stored with these runs.")
        stored = next(point["scales"] for point in runs[0]["curve"] if point.get("scales"))
        names = sources.layers(self.study, list(stored), self.layers)
        annealing = runs[0]["config"].get("annealing") or {}
        rows = [["layer", "mean σ, first", "mean σ, last"]]
        with styled():
            panels = Panels(1, 1, 2.8, legend=list(names.values()))
            (ax,) = panels.axes
            for position, (layer, title) in enumerate(names.items()):
                epochs, values = _line(runs, layer)
                ax.plot(epochs, values.mean(1), **{**series(position).line, "marker": ""})
                rows.append([title, *(as_words(estimate(map(Score, values[at].tolist()))) for at in (0, -1))])
            if annealing.get("name") == "linear":
                ax.axvspan(0, annealing["fraction"] * runs[0]["epochs"], color=GRID, zorder=0)
            ax.set(xlabel="epoch", ylabel="mean σ")
            log_scale(ax)
            picture = svg(panels.figure)
        text = linked(f"{stem}.svg", "Mean posterior standard deviation of each layer over training")
        return Shown(f"{text}\n\n{as_markdown(rows)}", {f"{stem}.svg": picture})


def _line(runs: Sequence[Mapping[str, Any]], layer: str) -> tuple[list[float], np.ndarray]:
    """Return epochs, and for each the mean standard deviation of every seed."""
    curves = [{point["step"]: point["scales"][layer] for point in run["curve"] if point.get("scales")} for run in runs]
    steps = sorted(set.intersection(*map(set, curves)))
    per_epoch = runs[0]["steps"] / runs[0]["epochs"]
    return [step / per_epoch for step in steps], np.array([[curve[step] for curve in curves] for step in steps])
