"""Figures 4 and 11 of the k-tied paper: a layer's standard deviations beside their approximations of low rank."""

from typing import Any

import numpy as np
from pydantic import Field

from reproductions.show.base import OfStudy, Shown
from reproductions.show.pictures import linked, png
from reproductions.stored import Sources
from slimbayes.analysis.heat_maps import plot_heat_maps
from slimbayes.report.figures._panels import Panels
from slimbayes.report.figures._style import styled

__all__ = ["HeatMaps"]


class HeatMaps(OfStudy):
    """One row of maps for each layer of the study's first run that has them."""

    methods: list[str] | None = Field(default_factory=lambda: ["mean_field"])
    layers: list[str] | None = None
    """Layers to show; by default all that were stored. The study says what they are called."""

    def render(self, sources: Sources, stem: str) -> Shown:
        """Draw the maps."""
        run = next((run for run in self.runs(sources) if run.get("heat_maps")), None)
        if run is None:
            return Shown("No heat maps were stored with these runs.")
        stored = run["heat_maps"]
        names = sources.layers(self.study, list(stored), self.layers)
        with styled(**{"axes.grid": False}):
            most = max(len(_maps(stored[layer])) for layer in names)
            panels = Panels(len(names) * most, most, 1.9, top=0.3, bottom=0.5)
            for position, layer in enumerate(names):
                maps = _maps(stored[layer])
                row = panels.axes[position * most : (position + 1) * most]
                plot_heat_maps(maps, axes=row[: len(maps)])
                for ax in row:
                    ax.set(xticks=[], yticks=[])
                row[0].set_title(f"{names[layer]}: σ")
            picture = png(panels.figure)
        shapes = "; ".join(f"{title}: {' × '.join(map(str, stored[layer]['shape']))}" for layer, title in names.items())
        text = linked(f"{stem}.png", "Heat maps of posterior standard deviations and their low-rank approximations")
        note = f"Seed {run['seed']}. Of large matrices, rows and columns are left out evenly. Shapes: {shapes}."
        return Shown(f"{text}\n\n{note}", {f"{stem}.png": picture})


def _maps(stored: dict[str, Any]) -> dict[str | int, np.ndarray]:
    ranks = sorted(int(key) for key in stored if key.isdigit())
    return {"sigma": np.array(stored["sigma"]), **{rank: np.array(stored[str(rank)]) for rank in ranks}}
