"""Memory does not grow over epochs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).parent / "memory_worker.py"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_peak_memory_does_not_grow_over_epochs(tmp_path, workers):
    done = subprocess.run(
        [sys.executable, WORKER, tmp_path, str(workers), "23"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    peaks = json.loads(done.stdout)
    # 20 epochs of batches, kept, would be 20 * 1000 * 64 * 4 bytes = 4.9 MiB, and as much again for each of the
    # activations of 4 members.
    assert peaks["23"] - peaks["3"] < 2, peaks
