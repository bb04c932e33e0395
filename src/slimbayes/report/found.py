"""The evaluations in folders of runs."""

import os
from collections.abc import Iterable
from pathlib import Path

from slimbayes.evaluation.record import FILE, Evaluation

__all__ = ["find_evaluations"]


def find_evaluations(paths: Iterable[str | os.PathLike[str]]) -> tuple[list[Evaluation], list[Path]]:
    """Return the evaluations in folders, and the runs in them that have none.

    Args:
        paths: Each the folder of a run, a folder of such folders (at any depth), or an evaluation's file.

    Raises:
        FileNotFoundError: If one of the paths holds no evaluation; it says how to make it.
    """
    files: dict[Path, Path] = {}  # by where they really are, so that none is read twice
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
