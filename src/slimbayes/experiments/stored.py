"""Stored runs of studies: one JSON file each, ``RESULTS/STUDY/SCALE/CELL.json``."""

import json
from pathlib import Path
from typing import Any

from slimbayes.experiments.study import Look, Study
from slimbayes.training.cells import Cell
from slimbayes.training.config import TrainConfig

__all__ = ["comparable", "readable", "result_path", "stored_run", "stored_runs"]


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
