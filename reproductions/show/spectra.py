"""Figures 3, 5 and 12 of the k-tied paper: the share of variance that each singular value explains."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from reproductions.show.base import OfStudies, Shown
from reproductions.show.estimates import Score, as_words, estimate
from reproductions.show.pictures import linked, svg, whole_ticks
from reproductions.stored import Sources
from slimbayes._text_table import as_markdown
from slimbayes.report.figures._panels import Panels, short
from slimbayes.report.figures._style import series, styled

__all__ = ["Spectra"]


class Spectra(OfStudies):
    """Two panels for each study, means beside standard deviations; or one panel for each layer."""

    method: str = "mean_field"
    values: int = Field(20, ge=1)
    """Singular values to show."""
    layers: dict[str, list[str]] = Field(default_factory=dict)
    """Layers to show, by study; by default all. The study says what they are called."""
    by_layer: bool = False
    """One panel for each layer."""

    def render(self, sources: Sources, stem: str) -> Shown:
        """Draw the spectra and tell how much the first values explain."""
        found = {study: self._spectra(sources, study) for study in self.ready(sources)}
        if not any(found.values()):
            return Shown("No spectra were stored with these runs.")
        rows = [["network", "layer", "σ: first value, %", "σ: first two, %", "means: first two, %"]]
        for study, layers in found.items():
            for layer, spectra in layers.items():
                shares = [_first(spectra["scale"], 1), _first(spectra["scale"], 2), _first(spectra["mean"], 2)]
                rows.append([sources.title(study), layer, *shares])
        with styled():
            figure = self._by_layer(found) if self.by_layer else self._by_study(found, sources)
            picture = svg(figure)
        text = linked(f"{stem}.svg", "Share of variance per singular value, of posterior means and standard deviations")
        seeds = max(len(spectra["scale"]) for layers in found.values() for spectra in layers.values())
        how = "mean over seeds, ± standard error" if seeds > 1 else "one seed"
        note = f"Share of variance that singular values explain: {how}."
        return Shown(f"{text}\n\n{as_markdown(rows)}\n\n{note}", {f"{stem}.svg": picture})

    def _spectra(self, sources: Sources, study: str) -> dict[str, dict[str, np.ndarray]]:
        """Return, by layer, the shares of all seeds: arrays of seeds by values."""
        runs = [run["spectra"] for run in sources.runs(study) if run["method"] == self.method and run.get("spectra")]
        names = sources.layers(study, [layer for run in runs[:1] for layer in run], self.layers.get(study))
        return {
            title: {part: np.array([run[layer][part][: self.values] for run in runs]) for part in ("mean", "scale")}
            for layer, title in names.items()
        }

    def _by_study(self, found: Mapping[str, Mapping[str, Any]], sources: Sources) -> Any:
        names = list(dict.fromkeys(layer for layers in found.values() for layer in layers))
        panels = Panels(2 * len(found), 2, 2.0, legend=names, top=0.35)
        for position, (study, layers) in enumerate(found.items()):
            pair = panels.axes[2 * position : 2 * position + 2]
            for ax, part, what in zip(pair, ("mean", "scale"), ("means", "standard deviations"), strict=True):
                for layer, one in layers.items():
                    _draw(ax, one[part], names.index(layer))
                ax.set_title(f"{short(sources.title(study), 22)}: {what}" if len(found) > 1 else f"posterior {what}")
        panels.outer("singular value", "share of variance")
        return panels.figure

    def _by_layer(self, found: Mapping[str, Mapping[str, Any]]) -> Any:
        layers = {layer: one for study in found.values() for layer, one in study.items()}
        panels = Panels(len(layers), 4, 1.2, legend=["means", "standard deviations"], top=0.3)
        for ax, (layer, one) in zip(panels.axes, layers.items(), strict=True):
            for position, part in enumerate(("mean", "scale")):
                _draw(ax, one[part], position)
            ax.set_title(short(layer, 22))
        panels.outer("singular value", "share")
        return panels.figure


def _draw(ax: Any, shares: np.ndarray, position: int) -> None:
    """Draw the mean over seeds."""
    ax.plot(np.arange(1, shares.shape[1] + 1), shares.mean(0), **series(position).line)
    ax.set_ylim(0, 1.02)
    whole_ticks(ax)


def _first(shares: np.ndarray, count: int) -> str:
    return as_words(estimate(Score(float(seed[:count].sum())) for seed in shares), percent=True)
