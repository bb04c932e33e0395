"""A grid's results as one table: every cell, and means over seeds with their standard errors."""

import csv
import json
import math
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from slimbayes._files import csv_cell, replacing, write_json
from slimbayes._text_table import aligned, as_markdown
from slimbayes.data.fingerprint import differences
from slimbayes.training._cells import Cell
from slimbayes.training._local_processes import LOG
from slimbayes.training.run import Run

PARTS = ("validation", "test")
SCORES = {"nll": "NLL", "accuracy": "accuracy", "ece": "ECE", "rmse": "RMSE"}


class GridTable:
    """The results of a grid; ``print(table)`` shows them.

    Args:
        folder: The grid's folder; paths in the table start there.
        cells: All of the grid, finished or not.

    Attributes:
        rows: By the cell's name: method, override, seed, status (finished, failed, unfinished), validation, test,
            draws (of all members, that the scores are of), seconds, folder, error, log.
    """

    def __init__(self, folder: Path, cells: Iterable[Cell]) -> None:
        cells = list(cells)
        self.folder = folder
        self.rows = {cell.name: _row(cell) for cell in cells}
        self._data = {cell.name: json.dumps(cell.config.as_json()["data"]) for cell in cells}
        self._first: dict[str, tuple[str, dict[str, Any]]] = {}

    def set_finished(self, name: str) -> None:
        """Take over the scores of a cell; it has failed if its file has changed since the others were trained."""
        run = Run(self.folder / name)
        result = run.result
        assert result is not None
        if (data := run.data) is not None:
            first, before = self._first.setdefault(self._data[name], (name, data))
            if changes := differences(before, data):
                self.set_failed(
                    name,
                    f"it was trained on other data than {first}: {'; '.join(changes)}. Remove the folders of the cells "
                    "that were trained on data that no longer hold",
                )
                return
        scores = {key: result[key] for key in (*PARTS, "seconds")}
        self.rows[name].update(scores, draws=result.get("draws"), status="finished", error=None)

    def set_failed(self, name: str, error: str) -> None:
        """Note why a cell has no scores."""
        self.rows[name].update(status="failed", error=error)

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The rows of cells that failed."""
        return [row for row in self.rows.values() if row["status"] == "failed"]

    def means(self) -> list[dict[str, Any]]:
        """Return mean and standard error over the finished seeds, for each method and override."""
        groups: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
        for row in self.rows.values():
            groups.setdefault((row["method"], row["override"]), []).append(row)
        return [
            {
                "method": method,
                "override": override,
                "seeds": len(rows),
                "finished": sum(row["status"] == "finished" for row in rows),
                "draws": sorted({row["draws"] for row in rows if row["draws"] is not None}),
                **{part: _means([row[part] for row in rows if row[part]]) for part in PARTS},
            }
            for (method, override), rows in groups.items()
        ]

    def as_json(self) -> dict[str, Any]:
        """Return all cells and the means as JSON values."""
        return {"cells": list(self.rows.values()), "means": self.means()}

    def write(self) -> None:
        """Write ``results.json``, ``results.csv`` and ``results.md``, each whole or not at all."""
        write_json(self.folder / "results.json", self.as_json())
        with replacing(self.folder / "results.csv", self.folder / "results.md") as (table, text):
            with table.open("w", newline="") as file:
                flat = [_flat(row) for row in self.rows.values()]
                writer = csv.DictWriter(file, list(flat[0]))
                writer.writeheader()
                writer.writerows({key: csv_cell(value) for key, value in row.items()} for row in flat)
            text.write_text(self.text(markdown=True) + "\n")

    def text(self, markdown: bool = False) -> str:
        """Return the means, and the cells that failed, as text."""
        means = self.means()
        columns = [(part, key) for part in PARTS for key in SCORES if any(key in group[part] for group in means)]
        rows = [["method", "override", "seeds", "draws", *(f"{part} {SCORES[key]}" for part, key in columns)]]
        for group in means:
            seeds = str(group["seeds"]) if group["finished"] == group["seeds"] else "{finished} of {seeds}"
            scores = [_score(group[part].get(key)) for part, key in columns]
            draws = ", ".join(map(str, group["draws"]))
            rows.append([group["method"], group["override"] or "", seeds.format(**group), draws, *scores])
        if not any(row[1] for row in rows[1:]):
            rows = [[row[0], *row[2:]] for row in rows]
        faults = [f"{row['folder']} failed: {row['error']} (log: {self.folder / row['log']})" for row in self.failed]
        if markdown:
            return "\n".join([as_markdown(rows), "", *(f"- {fault}" for fault in faults)]).strip()
        told = "Mean ± standard error over seeds; draws are those of all members, which the scores are of."
        return "\n".join([aligned(rows), told, *faults])

    def __str__(self) -> str:
        return self.text()


def _row(cell: Cell) -> dict[str, Any]:
    return {
        "method": cell.method,
        "override": cell.override,
        "seed": cell.seed,
        "status": "unfinished",
        **dict.fromkeys((*PARTS, "draws", "seconds")),
        "folder": cell.name,
        "error": None,
        "log": f"{cell.name}/{LOG}",
    }


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    scores = {f"{part}_{key}": (row[part] or {}).get(key) for part in PARTS for key in SCORES}
    start = {key: row[key] for key in ("method", "override", "seed", "status")}
    return {**start, **scores, **{key: row[key] for key in ("draws", "seconds", "folder", "error", "log")}}


def _means(scores: list[dict[str, float]]) -> dict[str, dict[str, float | None]]:
    by_key = {key: [one[key] for one in scores] for key in (scores[0] if scores else ())}
    return {
        key: {
            "mean": statistics.fmean(values),
            "error": statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None,
        }
        for key, values in by_key.items()
    }


def _score(score: dict[str, float | None] | None) -> str:
    if score is None:
        return ""
    return f"{score['mean']:.4f}" + ("" if score["error"] is None else f" ± {score['error']:.4f}")
