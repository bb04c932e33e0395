"""``kill -9`` at any moment loses at most the epoch under way."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).parent / "kill_worker.py"


def worker(*words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, WORKER, *map(str, words)], env=environment, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path):
    """The worker checks after each kill that the checkpoint loads, and at the end that the weights are the same."""
    found = worker("random", tmp_path, 0)
    assert found["kills"] >= 20
    assert found["epoch"] > 5, "some kills should come after epochs were completed"
    assert len(set(found["lost"])) > 2, "kills should come at different moments of an epoch"


@pytest.mark.slow
@pytest.mark.parametrize("epochs_before", [0, 1])
def test_killed_at_every_point_of_writing(tmp_path, epochs_before):
    found = worker("points", tmp_path, epochs_before)
    assert found["points"] > 20
    # Up to some point the new epoch is not there yet, and from then on it is.
    assert found["epochs"] == sorted(found["epochs"])
    assert set(found["epochs"]) == {epochs_before, epochs_before + 1}
