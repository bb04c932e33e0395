"""What pages are made from: the studies, and the runs that are stored of them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from slimbayes.experiments.stored import stored_runs
from slimbayes.experiments.study import Study, read_studies

__all__ = ["SHOWN_SCALES", "Sources"]

#: Pages show one of them; a smoke run shows nothing but that the code works.
SHOWN_SCALES = ("paper", "small")


@dataclass(frozen=True)
class Sources:
    """Studies and their stored runs, each file read once.

    Args:
        experiments: The folder with ``studies`` and ``results`` in it.
        scales: Scales whose runs are shown, the preferred one first.

    Example:
        >>> Sources(Path("nowhere")).runs("mnist"), Sources(Path("nowhere")).title("mnist")
        ([], 'mnist')
    """

    experiments: Path
    scales: Sequence[str] = SHOWN_SCALES
    _runs: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def results(self) -> Path:
        """Where runs are stored."""
        return self.experiments / "results"

    @cached_property
    def studies(self) -> dict[str, Study]:
        """All studies by name."""
        return read_studies(self.experiments)

    def scale(self, study: str) -> str | None:
        """Return the scale that has most of its runs, of several the preferred one; None if there are no runs yet."""

        def share(scale: str) -> float:
            runs = self.runs_at(study, scale)
            return len(runs) / len(self.studies[study].cells(scale)) if runs else 0.0

        best = max(self.scales, key=share)
        return best if share(best) else None

    def runs(self, study: str) -> list[dict[str, Any]]:
        """Return the stored runs that are shown, in the order of the study's cells."""
        scale = self.scale(study)
        return [] if scale is None else self.runs_at(study, scale)

    def runs_at(self, study: str, scale: str) -> list[dict[str, Any]]:
        """Return the stored runs of one scale, none if the study does not have it."""
        known = self.studies.get(study)
        if known is None or scale not in known.scales:
            return []
        if (study, scale) not in self._runs:
            self._runs[study, scale] = stored_runs(self.results, study, known, scale)
        return self._runs[study, scale]

    def title(self, study: str) -> str:
        """Return what people call a study."""
        return self.studies[study].title if study in self.studies else study

    def layers(self, study: str, found: Sequence[str], wanted: Sequence[str] | None = None) -> dict[str, str]:
        """Return layers and what people call them: the wanted ones of those that were found, or all."""
        titles = self.studies[study].layers if study in self.studies else {}
        return {layer: titles.get(layer, layer) for layer in (wanted or found) if layer in found}

    def stored_json(self, name: str) -> dict[str, Any] | None:
        """Return what a file in the folder of results holds, None if it is not there."""
        path = self.results / name
        return json.loads(path.read_text()) if path.exists() else None
