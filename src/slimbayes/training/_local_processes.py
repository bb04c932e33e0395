"""Cells of a grid on this machine: a process each, with one thread."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterable
from pathlib import Path

LOG = "log.txt"
#: Folders of cells, each with None or what went wrong.
Outcomes = Generator[tuple[Path, str | None], None, None]

#: What is done with a cell by default.
TRAIN = "slimbayes.training._cell_process:train_cell"
SCRIPT = Path(__file__).with_name("_cell_process.py")


def run_locally(folders: Iterable[Path], workers: int, task: str = TRAIN) -> Outcomes:
    """Train cells, or do something else with each, and yield each folder with None or its error as soon as it is done.

    Processes that are left when the iterator is closed are stopped; should this one be killed, they end by themselves.

    Args:
        folders: Each with a ``config.yaml``; output goes to its ``log.txt``.
        workers: Processes side by side.
        task: A function of a folder that returns None or what went wrong, as ``module:name``.
    """
    waiting = list(folders)[::-1]
    running: dict[Path, subprocess.Popen[bytes]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                folder = waiting.pop()
                running[folder] = _start(folder, task)
            for folder in [folder for folder, process in running.items() if process.poll() is not None]:
                yield folder, _error(running.pop(folder).returncode, folder / LOG)
            time.sleep(0.05)
    finally:
        _stop(running.values())


def _start(folder: Path, task: str) -> subprocess.Popen[bytes]:
    # The process finds the same modules, so that a network of one's own is found as well.
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    with (folder / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", SCRIPT, folder, str(os.getpid()), task],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _error(code: int, log: Path) -> str | None:
    if code == 0:
        return None
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    lines = log.read_text(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), f"exit code {code}")


def _stop(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
