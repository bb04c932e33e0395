"""Stored runs of studies: one JSON file each, ``RESULTS/STUDY/SCALE/CELL.json``."""

import json
from pathlib import Path
from typing import Any

from slimbayes.experiments.study import Study
from slimbayes.training.cells import Cell
from slimbayes.training.config import TrainConfig

__all__ = ["comparable", "is_stored", "readable", "result_path", "stored_runs"]


def result_path(results: Path, study: str, scale: str, cell: str) -> Path:
    """Return where a run is stored."""
    return results / study / scale / f"{cell}.json"


def comparable(config: TrainConfig) -> dict[str, Any]:
    """Return what decides a run's numbers: the configuration without what only says where and how data are read."""
    content = config.as_json()
    content["data"] = {key: value for key, value in content["data"].items() if key not in ("folder", "workers")}
    return content


def is_stored(results: Path, study: str, scale: str, cell: Cell) -> bool:
    """Tell whether a run is stored; raise if it is one of another configuration."""
    path = result_path(results, study, scale, cell.name)
    if not path.is_file():
        return False
    before, now = json.loads(path.read_text())["config"], comparable(cell.config)
    if before != now:
        keys = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
        raise ValueError(
            f"{path} is of another configuration: it differs in {', '.join(keys)}. Remove it to run it again, or put "
            f"the study {study} right."
        )
    return True


def stored_runs(results: Path, name: str, study: Study, scale: str) -> list[dict[str, Any]]:
    """Return the stored runs that a study has at a scale, in the order of its cells."""
    paths = [result_path(results, name, scale, cell.name) for cell in study.cells(scale)]
    return [json.loads(path.read_text()) for path in paths if path.is_file()]


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
