"""Runs of studies, longest first, each in a process of its own with one thread."""

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path

from slimbayes.experiments.job import Job
from slimbayes.experiments.stored import stored_run
from slimbayes.experiments.study import Study
from slimbayes.training.local import run_locally

__all__ = ["missing_jobs", "run_jobs"]

TASK = "slimbayes.experiments.job:run_job"


def missing_jobs(studies: Mapping[str, Study], scale: str, results: Path) -> list[Job]:
    """Return the runs that are not stored yet, longest first; a study without the scale has its nearest one."""
    jobs = [job for name, study in studies.items() for job in Job.of(name, study, study.nearest(scale))]
    missing = [job for job in jobs if stored_run(results, job.study, job.scale, job.cell, job.look) is None]
    return sorted(missing, key=lambda job: -job.minutes)


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
    folders = [job.prepare(runs.resolve(), results) for job in jobs]
    failed: dict[str, str] = {}
    with closing(run_locally(folders, workers, TASK)) as outcomes:
        for done, (folder, error) in enumerate(outcomes, 1):
            if error is not None:
                failed[str(folder)] = error
            if not quiet and not sys.stderr.isatty():
                name = "/".join(folder.parts[-3:])
                print(f"{done}/{len(folders)} {name}: {error or 'stored'}", file=sys.stderr, flush=True)
            if progress is not None:
                progress(done, len(folders))
    return failed
