"""Grids of runs, on this machine or on a Ray cluster. `slimbayes.training._grid_file` says what a grid's file holds."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from slimbayes._checks import check_choice, check_count
from slimbayes.data.dataset import DataSet
from slimbayes.data.folders import MissingData
from slimbayes.training._cells import Cell, cells_of
from slimbayes.training._grid_file import is_grid, read_grid
from slimbayes.training._grid_table import GridTable
from slimbayes.training._local_processes import Outcomes, run_locally
from slimbayes.training._on_ray import import_ray, run_on_ray
from slimbayes.training.config import TrainConfig
from slimbayes.training.lock import alone_in
from slimbayes.training.models import configured_data
from slimbayes.training.run import Run

__all__ = ["is_grid", "run_cells", "run_grid"]


def run_grid(
    grid: Mapping[str, Any] | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    overrides: Iterable[str] = (),
    on: str = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    quiet: bool = False,
) -> GridTable:
    """Train every cell of a grid, and write one table of results.

    Called again for the same folder, it leaves finished cells alone and continues the others from their last
    checkpoints. A cell that fails does not stop the rest; its output is in ``OUT/<cell>/log.txt``.

    Args:
        grid: A YAML file, or its keys and values.
        out: Where to write: a run folder for each cell, and ``results.json``, ``results.csv`` and ``results.md``,
            which are brought up to date whenever a cell is done. On a cluster, all machines must share it.
        overrides: Changes in words, such as ``seeds=5``, or ``epochs=3`` for the base of all cells.
        on: ``"local"`` for processes on this machine, with one thread each; ``"ray"`` for a Ray cluster (extra
            ``cluster``), where a cell whose worker dies is continued by another one.
        workers: Cells side by side; by default as many as there are cores.
        address: Of the Ray cluster; by default ``$RAY_ADDRESS``, else an instance on this machine is started.
        progress: Called with the number of cells that are done and of all.
        quiet: Say nothing; otherwise there is a line for each cell where there is no terminal.

    Returns:
        The table: ``print(table)``, ``table.rows``, ``table.failed``.

    Example:
        >>> import tempfile
        >>> base = {"data": "digits", "net": {"name": "mlp", "hidden": [8]}, "epochs": 1}
        >>> with tempfile.TemporaryDirectory() as out:
        ...     table = run_grid({"base": base, "methods": ["deterministic"]}, out, quiet=True)
        >>> [(name, row["status"]) for name, row in table.rows.items()]
        [('deterministic-seed0', 'finished')]
    """
    check_choice("on", on, ["local", "ray"])
    if workers is not None:
        check_count("workers", workers)
    if on == "ray":
        import_ray()

    def run(folders: list[Path]) -> Outcomes:
        return run_on_ray(folders, workers, address) if on == "ray" else run_locally(folders, workers or _cores())

    return run_cells(cells_of(read_grid(grid, overrides)), Path(out).resolve(), run, progress, quiet)


def run_cells(
    cells: Sequence[Cell],
    folder: Path,
    run: Callable[[list[Path]], Outcomes],
    progress: Callable[[int, int], None] | None = None,
    quiet: bool = False,
    what: str = "cells",
) -> GridTable:
    """Train the cells that are not finished; while they are trained, no other call may do so in the folder.

    Args:
        cells: What is wanted.
        folder: Gets a run folder for each cell, and the table.
        run: Trains what is in some folders, one after another or side by side.
        progress: See ``run_grid``.
        quiet: See ``run_grid``.
        what: What the cells are called.

    Raises:
        FolderInUse: Another process trains cells in the folder, maybe of other configurations under the same names.
    """
    with alone_in(folder):
        return _run_cells(cells, folder, run, progress, quiet, what)


def _run_cells(
    cells: Sequence[Cell],
    folder: Path,
    run: Callable[[list[Path]], Outcomes],
    progress: Callable[[int, int], None] | None,
    quiet: bool,
    what: str,
) -> GridTable:
    finished = _finished(cells, folder)
    table = GridTable(folder, cells)
    folders = []
    for cell in cells:
        if cell.name in finished:
            table.set_finished(cell.name)
        else:
            folders.append(folder / cell.name)
            folders[-1].mkdir(parents=True, exist_ok=True)
            Run(folders[-1]).store_config(cell.config)
    table.write()
    tell = _Teller(len(cells), len(finished), progress, quiet, what)
    with closing(run(folders)) as outcomes:
        for done, error in outcomes:
            if error is None:
                table.set_finished(done.name)
            else:
                table.set_failed(done.name, error)
            table.write()
            tell(table.rows[done.name])
    return table


def _cores() -> int:
    return os.cpu_count() or 1


def _finished(cells: Sequence[Cell], folder: Path) -> set[str]:
    """Return the cells that are not to be run again; raise if the folder holds other runs under their names."""
    finished, faults = set(), []
    data_of = _DataOnce()
    for cell in cells:
        run = Run(folder / cell.name)
        if run.result is None and run.checkpoints.index() is None:
            continue  # it may have failed for a fault that the grid no longer has
        try:
            run.check_unchanged(cell.config)
            if run.result is not None and run.result.get("length") == cell.config.length:
                finished.add(cell.name)
                if (data := data_of(cell.config)) is not None:
                    run.check_data(data)
        except ValueError as error:
            faults.append(f"{cell.name}: {error}")
    if faults:
        advice = "Give another folder for all, or remove the folders of these."
        raise ValueError("\n  ".join(["Nothing was run, since stored runs differ from the wanted:", *faults, advice]))
    return finished


class _DataOnce:
    """Loads the data of configurations, once for those that follow each other; None if they are not there."""

    def __init__(self) -> None:
        self.section: Any = None
        self.data: DataSet | None = None

    def __call__(self, config: TrainConfig) -> DataSet | None:
        if config.data != self.section:
            self.section, self.data = config.data, None
            with suppress(MissingData):
                self.data = configured_data(config)
        return self.data


class _Teller:
    """Says how far the grid is: by the callback, and by a line for each cell where there is no terminal."""

    def __init__(
        self, total: int, done: int, progress: Callable[[int, int], None] | None, quiet: bool, what: str
    ) -> None:
        self.total, self.done, self.progress = total, done, progress
        self.lines = not quiet and not sys.stderr.isatty()
        if self.lines and done:
            print(f"{done} of {total} {what} are finished already", file=sys.stderr, flush=True)
        self._report()

    def __call__(self, row: dict[str, Any]) -> None:
        self.done += 1
        if self.lines:
            how = f"{row['seconds']:.1f} s" if row["error"] is None else f"{row['error']} (log: {row['log']})"
            print(f"{self.done}/{self.total} {row['folder']} {row['status']}: {how}", file=sys.stderr, flush=True)
        self._report()

    def _report(self) -> None:
        if self.progress is not None:
            self.progress(self.done, self.total)
