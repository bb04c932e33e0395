"""Stored runs of studies: one JSON file each, ``RESULTS/STUDY/SCALE/CELL.json``."""

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from reproductions.study import Look, Study, read_studies
from slimbayes.training._cells import Cell
from slimbayes.training.config import TrainConfig

__all__ = [
    "SHOWN_SCALES",
    "Sources",
    "comparable",
    "packed",
    "readable",
    "result_path",
    "stored_run",
    "stored_runs",
    "unpacked",
]


def result_path(results: Path, study: str, scale: str, cell: str) -> Path:
    """Return where a run is stored."""
    return results / study / scale / f"{cell}.json"


def comparable(config: TrainConfig) -> dict[str, Any]:
    """Return what decides a run's numbers: the configuration without what only says where and how data are read."""
    content = config.as_json()
    content["data"] = {key: value for key, value in content["data"].items() if key not in ("folder", "workers")}
    return content


def stored_run(results: Path, study: str, scale: str, cell: Cell, look: Look | None = None) -> dict[str, Any] | None:
    """Return a stored run, None if there is none; raise if it is one of another configuration.

    Args:
        results: The folder of results.
        study: Name of its study.
        scale: Its scale.
        cell: What it should be.
        look: What should have been measured of it; None if that does not matter.
    """
    path = result_path(results, study, scale, cell.name)
    if not path.is_file():
        return None
    run = json.loads(path.read_text())
    before, now = run["config"], comparable(cell.config)
    keys = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    if look is not None and run.get("look", look.model_dump()) != look.model_dump():
        keys.append("look")
    if keys:
        raise ValueError(
            f"{path} is of another configuration: it differs in {', '.join(keys)}. Remove it to run it again, or put "
            f"the study {study} right."
        )
    return run


def stored_runs(results: Path, name: str, study: Study, scale: str) -> list[dict[str, Any]]:
    """Return the stored runs that a study has at a scale, in the order of its cells; raise as ``stored_run`` does."""
    look = study.look_at(scale)
    runs = [stored_run(results, name, scale, cell, look) for cell in study.cells(scale)]
    return [run for run in runs if run is not None]


def readable(content: Any, indent: int = 0) -> str:
    """Return JSON with a line for each key, and lists in one line: matrices stay short.

    Example:
        >>> print(readable({"a": {"b": [1, 2]}}))
        {
          "a": {
            "b": [1, 2]
          }
        }
    """
    if not isinstance(content, dict) or not content:
        return json.dumps(content, allow_nan=False)
    space = " " * (indent + 2)
    lines = [f"{space}{json.dumps(key)}: {readable(value, indent + 2)}" for key, value in content.items()]
    return "{\n" + ",\n".join(lines) + "\n" + " " * indent + "}"


def packed(values: Sequence[float]) -> str:
    """Return numbers, one for each example, with four decimals as short text: whole ten-thousandths, compressed.

    Example:
        >>> unpacked(packed([1, 0, 2.34567])).tolist()
        [1.0, 0.0, 2.3457]
    """
    whole = np.round(np.asarray(values, float) * DECIMALS).astype("<i4")
    return base64.b64encode(zlib.compress(whole.tobytes(), 9)).decode()


def unpacked(text: str) -> np.ndarray:
    """Return the numbers that ``packed`` made a text of."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), "<i4") / DECIMALS


#: How many parts of one ``packed`` tells apart.
DECIMALS = 10_000

#: Pages show one of them; a smoke run shows nothing but that the code works.
SHOWN_SCALES = ("paper", "small")


@dataclass(frozen=True)
class Sources:
    """Studies and their stored runs, each file read once.

    Args:
        folder: The folder with ``studies`` and ``results`` in it.
        scales: Scales whose runs are shown, the preferred one first.

    Example:
        >>> Sources(Path("nowhere")).runs("mnist"), Sources(Path("nowhere")).title("mnist")
        ([], 'mnist')
    """

    folder: Path
    scales: Sequence[str] = SHOWN_SCALES
    _runs: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def results(self) -> Path:
        """Where runs are stored."""
        return self.folder / "results"

    @cached_property
    def studies(self) -> dict[str, Study]:
        """All studies by name."""
        return read_studies(self.folder)

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
        return _read(self.results / name)

    def benchmark(self, name: str) -> dict[str, Any] | None:
        """Return what a file in ``benchmarks/results``, beside the folder, holds, None if it is not there."""
        return _read(self.folder.absolute().parent / "benchmarks" / "results" / name)


def _read(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text()) if path.exists() else None
