"""A grid on a local Ray instance, with a worker killed in the middle of a run."""

import json
import os
import signal
import threading
import time

import pytest

from slimbayes.training import Run
from slimbayes.training.grid import run_grid
from slimbayes.training.lock import LOCK

pytest.importorskip("ray", reason="needs the extra cluster")
pytestmark = pytest.mark.slow

GRID = {
    "base": {"data": "digits", "net": {"name": "mlp", "hidden": [8]}, "epochs": 30, "batch_size": 16},
    "methods": ["deterministic", "batch_ensemble"],
}


def weights(folder, which):
    return (Run(folder).checkpoints.path(which) / "model.safetensors").read_bytes()


def kill_once(folder, killed):
    """Kill the process that trains in a folder as soon as it has a checkpoint; note which, and at which epoch."""
    while not (folder / "checkpoints/index.json").exists():
        time.sleep(0.02)
    process = json.loads((folder / LOCK).read_text())["process"]
    os.kill(process, signal.SIGKILL)
    killed.append((process, Run(folder).checkpoints.index().epoch, (folder / "result.json").exists()))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    out = tmp_path_factory.mktemp("uninterrupted")
    assert not run_grid(GRID, out, quiet=True).failed
    return out


def test_a_cell_whose_worker_is_killed_continues_to_the_same_weights(uninterrupted, tmp_path):
    killed = []
    victim = tmp_path / "deterministic-seed0"
    killer = threading.Thread(target=kill_once, args=(victim, killed), daemon=True)
    killer.start()
    table = run_grid(GRID, tmp_path, on="ray", workers=2, quiet=True)
    _process, epoch, finished = killed[0]
    assert 1 <= epoch < 30
    assert not finished
    assert not (victim / LOCK).exists()
    assert [row["status"] for row in table.rows.values()] == ["finished", "finished"]
    for name in table.rows:
        for which in ("last", "best"):
            assert weights(tmp_path / name, which) == weights(uninterrupted / name, which)
    assert [line["epoch"] for line in Run(victim).metrics if "train" in line] == list(range(1, 31))
    # The first process showed epochs up to the kill, the second one the rest; the one in between by both or, killed
    # after the checkpoint and before its line, by neither.
    epochs = [line for line in (victim / "log.txt").read_text().splitlines() if line.startswith("epoch ")]
    assert 29 <= len(epochs) <= 31
    again = run_grid(GRID, tmp_path, on="local", quiet=True)
    assert again.as_json() == table.as_json()


def test_a_cell_that_raises_is_a_failed_cell(tmp_path):
    methods = {"good": {"name": "deterministic"}, "bad": {"name": "rank1", "members": 0}}
    table = run_grid({**GRID, "methods": methods}, tmp_path, overrides=["epochs=1"], on="ray", workers=2, quiet=True)
    assert [row["status"] for row in table.rows.values()] == ["finished", "failed"]
    assert "`members` to be an integer of at least 1, but got 0" in table.failed[0]["error"]
    assert "Traceback" in (tmp_path / "bad-seed0/log.txt").read_text()
