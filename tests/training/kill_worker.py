"""Kills real training processes. It imports torch once and forks, so that a kill costs a fraction of a second."""

import gc
import json
import os
import random
import re
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
from training_runs import small, weights

import slimbayes._saving
from slimbayes.data.registry import load_data
from slimbayes.training import Run, fit
from slimbayes.training.loop import Loop

STEPS = 4  # of an epoch
KILLS = 24


def in_child(work: Callable[[], None]) -> int:
    """Start a process that does the work, and return its id."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def killed(process: int) -> bool:
    """Wait for a process; return whether it was killed, and raise if it failed."""
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "a run failed"
    return False


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def check_readable(folder: Path) -> int:
    """Load what a run left; return the epochs that its last checkpoint has behind it."""
    run = Run(folder)
    index = run.checkpoints.index()
    assert all(isinstance(line["epoch"], int) for line in run.metrics)
    if index is None:
        return 0
    for which in ("best", "last"):
        assert all(p.isfinite().all() for p in run.model(which).parameters())
    assert run.checkpoints.state()["elbo"]["steps"] == STEPS * index.epoch
    return index.epoch


def check_same(folder: Path, whole: Path, epochs: int) -> None:
    assert weights(folder, epochs) == weights(whole, epochs)
    ours, theirs = Run(folder), Run(whole)
    assert ours.checkpoints.index() == theirs.checkpoints.index()
    assert ours.result["test"] == theirs.result["test"]
    assert [line["step"] for line in ours.metrics] == [line["step"] for line in theirs.metrics]
    assert sorted(path.name for path in folder.rglob("*")) == sorted(path.name for path in whole.rglob("*"))


# ---------------------------------------------------------------------- at random moments


def train_and_tell(config: dict, folder: Path, log: Path, pipe: int) -> None:
    """Resume a run that writes the number of each step which it begins to a pipe, and its report to a log."""
    step = Loop.step

    def told(self: Loop, *args: object) -> int:
        os.write(pipe, self.elbo.steps.to_bytes(4, "big"))
        return step(self, *args)

    Loop.step = told
    with log.open("a") as sys.stderr:
        fit(config, folder, resume=True)


def reported(log: Path) -> int:
    """Return the last epoch that the log says is done."""
    lines = re.findall(r"^epoch (\d+)/.*\n", log.read_text() if log.is_file() else "", re.MULTILINE)
    return int(lines[-1]) if lines else 0


def kill_at_random(folder: Path, seed: int) -> dict[str, object]:
    config, epochs, generator = small(epochs=60), 60, random.Random(seed)
    assert not killed(in_child(lambda: fit(config, folder / "whole", quiet=True)))
    log, known, kills, lost = folder / "log", 0, 0, []
    while kills < KILLS:
        read, write = os.pipe()
        process = in_child(lambda pipe=write: train_and_tell(config, folder / "killed", log, pipe))
        os.close(write)
        begun = STEPS * known
        for _ in range(generator.randrange(-3, 3 * STEPS)):  # none: killed while it starts
            if number := os.read(read, 4):
                begun = int.from_bytes(number, "big")
        time.sleep(generator.expovariate(1 / 0.02))
        os.kill(process, signal.SIGKILL)
        assert killed(process), "the run is too short"
        while number := os.read(read, 4):
            begun = int.from_bytes(number, "big")
        os.close(read)
        kills += 1
        epoch = check_readable(folder / "killed")
        assert epoch >= known
        assert epoch >= reported(log)
        assert epoch >= begun // STEPS, "more than the epoch under way was lost"
        known = epoch
        lost.append(begun - STEPS * epoch)
    assert not killed(in_child(lambda: fit(config, folder / "killed", resume=True, quiet=True)))
    check_same(folder / "killed", folder / "whole", epochs)
    return {"kills": kills, "epoch": known, "lost": lost}


# ---------------------------------------------------------------------- at every point of writing


def patch_to_kill(point: int) -> None:
    """Make this process end itself at a point: before a call that changes the disk, or with a file half written."""
    passed = 0

    def reached() -> bool:
        nonlocal passed
        passed += 1
        return passed == point

    def watched(function: Callable, path_argument: int | None = None) -> Callable:
        def call(*args: object, **kwargs: object) -> object:
            if reached():
                kill_self()
            result = function(*args, **kwargs)
            if path_argument is not None and reached():
                path = args[path_argument]
                os.truncate(path, os.path.getsize(path) // 2)
                kill_self()
            return result

        return call

    torch.save = watched(torch.save, 1)
    slimbayes._saving.save_file = watched(slimbayes._saving.save_file, 1)
    Path.write_text = watched(Path.write_text, 0)
    for name in ("replace", "rename", "mkdir"):
        setattr(os, name, watched(getattr(os, name)))
    shutil.rmtree = watched(shutil.rmtree)


def kill_at_every_point(folder: Path, epochs_before: int) -> dict[str, object]:
    epochs = epochs_before + 1
    assert not killed(in_child(lambda: fit(small(epochs=epochs), folder / "whole", quiet=True)))
    start = folder / "start"
    start.mkdir()
    if epochs_before:
        assert not killed(in_child(lambda: train_until(epochs, epochs_before, start)))
    place, point, found = folder / "killed", 0, []
    while True:
        point += 1
        shutil.copytree(start, place)

        def work(point: int = point) -> None:
            patch_to_kill(point)
            fit(small(epochs=epochs), place, resume=True, quiet=True)

        if not killed(in_child(work)):
            return {"points": point - 1, "epochs": found}
        found.append(check_readable(place))
        assert found[-1] in (epochs_before, epochs)
        assert not killed(in_child(lambda: fit(small(epochs=epochs), place, resume=True, quiet=True)))
        check_same(place, folder / "whole", epochs)
        shutil.rmtree(place)


def train_until(epochs: int, epoch: int, folder: Path) -> None:
    """Train, and end without a trace when an epoch's first step begins."""
    step = Loop.step

    def ended(self: Loop, *args: object) -> int:
        if self.elbo.steps == STEPS * epoch:
            os._exit(0)
        return step(self, *args)

    Loop.step = ended
    fit(small(epochs=epochs), folder, quiet=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    load_data("digits")  # imports scikit-learn once
    gc.collect()
    gc.freeze()  # or each child would copy what it never changes
    what, place, number = sys.argv[1:]
    work = {"random": kill_at_random, "points": kill_at_every_point}[what]
    print(json.dumps(work(Path(place), int(number))))
