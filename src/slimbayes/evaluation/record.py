"""What an evaluation found: the JSON file that ``slimbayes evaluate`` writes beside a run; reading and finding it."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FILE", "Evaluation", "find_evaluations"]

#: Name of the file in a run's folder.
FILE = "evaluation.json"

Scores = dict[str, float | None]


@dataclass(frozen=True)
class Evaluation:
    """An evaluation, read from its JSON content; docs/evaluation.md describes it.

    Args:
        content: The content of the file.
        folder: Where it was found, or None.
    """

    content: dict[str, Any]
    folder: Path | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Evaluation":
        """Return the evaluation in a file, or in the folder of a run."""
        path = Path(path)
        file = path / FILE if path.is_dir() else path
        if not file.is_file():
            raise FileNotFoundError(f"There is no {file}. Make it with: slimbayes evaluate {file.parent}")
        try:
            content = json.loads(file.read_text())
        except ValueError as error:
            raise ValueError(f"{file} is not JSON ({error}). {_anew(file)}") from error
        if not isinstance(content, dict) or not {"settings", "results"} <= content.keys():
            raise ValueError(f"{file} does not hold an evaluation. {_anew(file)}")
        return cls(content, file.parent)

    @property
    def title(self) -> str:
        """What tables call it; evaluations of the same title are the seeds of one method."""
        return self.content["title"]

    @property
    def samples(self) -> list[int]:
        """Numbers of draws of each member that were tried, ascending."""
        return sorted(map(int, self.content["results"]))

    @property
    def draws(self) -> int:
        """Draws that the scores rest on: those of all members, at the largest number of each."""
        return self.samples[-1] * self.content["members"]

    @property
    def regression(self) -> bool:
        """Whether the targets are real values."""
        return self.content["task"]["likelihood"] == "gaussian"

    def result(self, samples: int | None = None) -> dict[str, Any]:
        """Return all results for a number of draws; the largest by default."""
        return self.content["results"][str(self.samples[-1] if samples is None else samples)]

    def clean(self, samples: int | None = None) -> Scores:
        """Return the scores on the test examples as they are."""
        return self.result(samples)["clean"]["scores"]

    def corrupted(self, samples: int | None = None) -> Iterator[tuple[str, int, Scores]]:
        """Yield each corruption's name, severity and scores."""
        for name, severities in self.result(samples)["corrupted"].items():
            for severity, one in severities.items():
                yield name, int(severity), one["scores"]


def _anew(file: Path) -> str:
    return f"Make it anew with: slimbayes evaluate {file.parent} --fresh"


def find_evaluations(paths: Iterable[str | os.PathLike[str]]) -> tuple[list[Evaluation], list[Path]]:
    """Return the evaluations in folders, and the runs in them that have none.

    Args:
        paths: Each the folder of a run, a folder of such folders (at any depth), or an evaluation's file.

    Raises:
        FileNotFoundError: If one of the paths holds no evaluation; it says how to make it.
    """
    files: dict[Path, Path] = {}  # by resolved path, so that none is read twice
    missing: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise FileNotFoundError(f"There is no {path}. Give a folder that `slimbayes train` wrote.")
        if path.is_file() or (path / FILE).is_file():
            found, runs = [path if path.is_file() else path / FILE], []
        else:
            found, runs = sorted(path.rglob(FILE)), sorted(one.parent for one in path.rglob("config.yaml"))
        if not found:
            where = f"{path}/*" if runs and runs[0] != path else path
            raise FileNotFoundError(f"There is no {path / FILE}. Make it with: slimbayes evaluate {where}")
        for file in found:
            files.setdefault(file.resolve(), file)
        missing += [run for run in runs if not (run / FILE).is_file() and run not in missing]
    return [Evaluation.read(file) for file in files.values()], missing
