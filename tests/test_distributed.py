"""DistributedDataParallel over gloo, two processes, every (method, network) case."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cases import CASES

# One pair of processes serves all cases, so they must not be spread over test workers.
pytestmark = pytest.mark.xdist_group("ddp")
WORKER = Path(__file__).parent / "ddp_worker.py"


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ddp")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    workers = [
        subprocess.Popen(
            [sys.executable, WORKER, folder / "store", str(rank), folder / "out"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    logs = [worker.communicate(timeout=500)[0] for worker in workers]
    assert all(worker.returncode == 0 for worker in workers), "\n".join(logs)
    return [torch.load(folder / f"out.{rank}", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize(("method", "network"), CASES)
@pytest.mark.parametrize("check", ["averaged", "kl_once", "noise_rank_local", "seeded"])
def test_two_processes(results, method, network, check):
    assert [ranks[method, network][check] for ranks in results] == [True, True]
