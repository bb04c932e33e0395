"""Runs of studies, longest first, each in a process of its own with one thread."""

import json
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path

from reproductions.stored import comparable, readable, result_path, stored_run
from reproductions.study import Look, Study
from slimbayes._files import replacing, write_json
from slimbayes.training._cells import Cell
from slimbayes.training._local_processes import run_locally
from slimbayes.training.run import Run

__all__ = ["Job", "check_names", "missing_jobs", "run_job", "run_jobs"]


#: Holds what is to be stored beside the numbers, and where; in a run's folder.
FILE = "job.json"


@dataclass(frozen=True)
class Job:
    """A run that is to be made.

    Attributes:
        study: Name of its study.
        scale: Its scale.
        cell: Title, seed and configuration.
        look: What is measured after training.
        minutes: How long it is thought to take.
        members: Names of the study's runs that it is made of, if it is an ensemble that is not trained.
    """

    study: str
    scale: str
    cell: Cell
    look: Look
    minutes: float
    members: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, study: Study, scale: str) -> list["Job"]:
        """Return all runs of a study at a scale."""
        look, members = study.look_at(scale), study.members_of(scale)
        return [
            cls(name, scale, cell, look, study.minutes(cell, scale), tuple(members.get(cell.name, ())))
            for cell in study.cells(scale)
        ]

    def prepare(self, runs: Path, results: Path) -> Path:
        """Write down what ``run_job`` needs; return the run's folder.

        Raises:
            ValueError: The folder holds checkpoints of another configuration, which would be taken for this one's.
        """
        folder = runs / self.study / self.scale / self.cell.name
        run = Run(folder)
        if run.checkpoints.index() is not None:
            try:
                run.check_unchanged(self.cell.config)
            except ValueError as error:
                raise ValueError(f"{error} Remove that folder to run it anew.") from None
        folder.mkdir(parents=True, exist_ok=True)
        run.store_config(self.cell.config)
        about = {
            "study": self.study,
            "scale": self.scale,
            "cell": self.cell.name,
            "method": self.cell.method,
            "override": self.cell.override,
            "seed": self.cell.seed,
        }
        path = result_path(results, self.study, self.scale, self.cell.name).resolve()
        content = {"about": about, "look": self.look.model_dump(), "result": str(path), "members": self.members}
        write_json(folder / FILE, content)
        return folder


def run_job(folder: Path) -> str | None:
    """Train what the folder holds from its last checkpoint on, look at it and store the result.

    Returns:
        None, or what went wrong in one line; the whole story goes to the standard error.
    """
    from reproductions.measurements import look_at
    from slimbayes._provenance import provenance
    from slimbayes.training._cell_process import train_cell

    job = json.loads((folder / FILE).read_text())
    if not job.get("members"):
        error = train_cell(folder)
        if error is not None:
            return error
    try:
        if members := job.get("members"):
            _assemble(folder, [Run(folder.parent / name) for name in members])
        found = look_at(folder, Look(**job["look"]))
        path = Path(job["result"])
        path.parent.mkdir(parents=True, exist_ok=True)
        about = {**job["about"], "config": comparable(Run.open(folder).config), "look": job["look"]}
        content = {**about, **found, **provenance()}
        with replacing(path) as (temporary,):
            temporary.write_text(readable(content) + "\n")
    except Exception as failure:
        traceback.print_exc(file=sys.stderr)
        return " ".join(f"{type(failure).__name__}: {failure}".split())
    return None


def _assemble(folder: Path, members: Sequence[Run]) -> None:
    """Make a folder the run of an ensemble of others, unless it is already."""
    from slimbayes.training._assembly import assemble

    missing = [run.folder.name for run in members if not run.exists() or run.result is None]
    if missing:
        raise FileNotFoundError(f"The members {', '.join(missing)} are not in {folder.parent}. Train them there first.")
    run = Run(folder)
    if run.result is None:
        assemble(run, run.config, members)


TASK = "reproductions.jobs:run_job"


def missing_jobs(studies: Mapping[str, Study], scale: str, results: Path) -> list[Job]:
    """Return the runs that are not stored yet; a study without the scale has its nearest one.

    The longest go first; of those that are equally long, first seeds before second ones. Ensembles of others are last.
    """
    jobs = [job for name, study in studies.items() for job in Job.of(name, study, study.nearest(scale))]
    missing = [job for job in jobs if stored_run(results, job.study, job.scale, job.cell, job.look) is None]
    return sorted(missing, key=lambda job: (bool(job.members), -job.minutes, job.cell.seed))


def check_names(patterns: Iterable[str], studies: Mapping[str, Study], scale: str) -> None:
    """Raise unless each pattern, such as ``rank1-*-seed0``, fits the name of some run."""
    names = [cell.name for study in studies.values() for cell in study.cells(study.nearest(scale))]
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in names):
            raise ValueError(f"Expected `--only` to fit a run, but got {pattern!r}. There are {', '.join(names)}.")


def run_jobs(
    jobs: Iterable[Job],
    runs: Path,
    results: Path,
    workers: int = 2,
    progress: Callable[[int, int], None] | None = None,
    quiet: bool = False,
) -> dict[str, str]:
    """Make runs and store their results; what was interrupted goes on from its last checkpoint.

    Args:
        jobs: What to run, in this order.
        runs: Gets a run folder for each, with its checkpoints and its log.
        results: Gets a JSON file for each.
        workers: Processes side by side.
        progress: Called with the number of runs that are done and of all.
        quiet: Say nothing; otherwise there is a line for each run where there is no terminal.

    Returns:
        What went wrong, by the run's folder.
    """
    jobs = list(jobs)
    folders = [job.prepare(runs.resolve(), results) for job in jobs]
    ensembles = [folder for folder, job in zip(folders, jobs, strict=True) if job.members]
    others = [folder for folder in folders if folder not in ensembles]
    failed: dict[str, str] = {}
    with closing(run_locally(others, workers, TASK)) as first, closing(run_locally(ensembles, workers, TASK)) as second:
        for done, (folder, error) in enumerate(chain(first, second), 1):
            if error is not None:
                failed[str(folder)] = error
            if not quiet and not sys.stderr.isatty():
                name = "/".join(folder.parts[-3:])
                print(f"{done}/{len(folders)} {name}: {error or 'stored'}", file=sys.stderr, flush=True)
            if progress is not None:
                progress(done, len(folders))
    return failed
