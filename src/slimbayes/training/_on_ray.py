"""Cells of a grid on a Ray cluster: a task each."""

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch

from slimbayes.training._cell_process import train_cell
from slimbayes.training._local_processes import LOG, Outcomes

#: Times that a cell is given to another worker when its worker dies.
RETRIES = 3


def import_ray() -> Any:
    """Return the package, or raise with the name of the extra."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ImportError(f'--on ray needs {error.name}: pip install "slimbayes[cluster]"') from error
    return ray


def run_on_ray(folders: Iterable[Path], workers: int | None = None, address: str | None = None) -> Outcomes:
    """Train cells, and yield each folder with None or its error as soon as it is done.

    A worker that dies is replaced, and its cell continues from the last checkpoint. Tasks that are left when the
    iterator is closed are cancelled.

    Args:
        folders: Each with a ``config.yaml``; output goes to its ``log.txt``. Every machine must see them under the
            same path, and have slimbayes installed.
        workers: Cells side by side; by default as many as there are cores in the cluster.
        address: Of a running cluster; by default ``$RAY_ADDRESS``, else an instance on this machine is started.
    """
    ray = import_ray()
    with _connection(ray, workers, address):
        task = ray.remote(num_cpus=1, max_retries=RETRIES, max_calls=1)(_train)
        waiting = list(folders)[::-1]
        running: dict[Any, Path] = {}
        try:
            while waiting or running:
                while waiting and (workers is None or len(running) < workers):
                    folder = waiting.pop()
                    running[task.remote(folder)] = folder
                for done in ray.wait(list(running))[0]:
                    yield running.pop(done), _outcome(ray, done)
        finally:
            for left in running:
                ray.cancel(left, force=True)


def _train(folder: Path) -> str | None:
    torch.set_num_threads(1)
    with (folder / LOG).open("a", buffering=1) as log, redirect_stdout(log), redirect_stderr(log):
        # The same for each attempt: a lock of an earlier one is of a worker that has died.
        return train_cell(folder, import_ray().get_runtime_context().get_task_id())


def _outcome(ray: Any, done: Any) -> str | None:
    try:
        return ray.get(done)
    except ray.exceptions.RayError as error:
        return " ".join(f"{type(error).__name__}: {error}".split())


@contextmanager
def _connection(ray: Any, workers: int | None, address: str | None) -> Iterator[None]:
    if ray.is_initialized():
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    local = {"num_cpus": workers, "include_dashboard": False} if address == "local" else {}
    ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **local)
    try:
        yield
    finally:
        ray.shutdown()
