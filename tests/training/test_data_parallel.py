"""Two gloo processes against one that takes the same steps."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from training_runs import small, weights

from slimbayes.data.registry import load_data
from slimbayes.training import Run, fit
from slimbayes.training.evaluation import evaluate

# One pair of processes serves all tests, so they must not be spread over test workers.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("data_parallel")]
HERE = Path(__file__).parent

SGD = {"name": "sgd", "lr": 0.05}
SLOW = {"name": "sgd", "lr": 0.01}
#: Each process draws for its own examples, so that only locations have the same scores.
AT_LOCATIONS = {"samples": 0}
#: Of 63 examples one process has 32 and the other 31; the last step of 11 is uneven, too.
CONFIGS = {
    "deterministic": small(method="deterministic", optimiser=SGD, batch_size=63),
    "clipped": small(method="deterministic", optimiser={**SGD, "clip_norm": 0.1, "weight_decay": 0.1}, batch_size=63),
    "accumulated": small(method="batch_ensemble", optimiser=SGD, batch_size=63, accumulate=2),
    "ensemble": small(
        method={"name": "deep_ensemble", "members": 2}, optimiser={**SGD, "clip_norm": 0.1}, batch_size=63
    ),
    "swag": small(
        method={"name": "swag", "rank": 2},
        optimiser=SGD,
        batch_size=63,
        collect={"start": 0.3},
        evaluation=AT_LOCATIONS,
    ),
    "subspace": small(
        method={"name": "subspace", "rank": 1, "keep": 3},
        optimiser=SGD,
        batch_size=63,
        collect={"start": 0.3, "every": 0.5, "draws": 2},
        evaluation=AT_LOCATIONS,
    ),
    "chains": small(
        method={"name": "sgmcmc", "members": 2, "keep": 2},
        optimiser={"name": "sghmc", "lr": 0.05},
        batch_size=63,
        evaluation=AT_LOCATIONS,
    ),
    "rank1": small(method={"name": "rank1", "dropout_rate": 0.3}, optimiser=SLOW, batch_size=63, annealing="none"),
    "mean_field": small(method="mean_field", optimiser=SLOW, batch_size=63, annealing="none", epochs=6),
    "normed": small(method="deterministic", net={"name": "dp_worker:normed"}, evaluation={"every": 1}),
    "tracked": small(method="deterministic", trackers=["tensorboard"], epochs=1),
}


def launch(folder, jobs, *launcher):
    (folder / "jobs.json").write_text(json.dumps(jobs))
    ours = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(HERE), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-m", *launcher, HERE / "dp_worker.py", folder],
        env={**os.environ, **ours},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Return the folder of the runs, and what each of the processes saw, by the name of the run."""
    folder = tmp_path_factory.mktemp("pair")
    jobs = [{"name": name, "config": config} for name, config in CONFIGS.items()]
    jobs += [
        {"name": "pieces", "config": CONFIGS["rank1"], "interrupt": 7},
        {"name": "pieces", "config": CONFIGS["rank1"], "resume": True},
        {"name": "left", "config": CONFIGS["deterministic"], "interrupt": 7},
    ]
    ranks = launch(folder, jobs, "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    names = [job["name"] for job in jobs]
    return folder / "runs", [{**rank, "jobs": dict(zip(names, rank["jobs"], strict=True))} for rank in ranks]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return a function that does a run in this process, once."""
    folder = tmp_path_factory.mktemp("alone")
    return lambda name: fit(CONFIGS[name], folder / name, resume=True, quiet=True)


def trajectory(run, *names):
    return np.array([[line[name] for name in names] for line in run.metrics if "lr" in line])


@pytest.mark.parametrize("name", ["deterministic", "clipped", "accumulated", "ensemble", "swag", "subspace", "chains"])
def test_without_noise_the_same_as_one_process(pair, alone, name):
    ours, theirs = Run(pair[0] / name), alone(name)
    names = ("step", "loss", "nll", "kl", "accuracy", "examples", "lr", "beta")
    np.testing.assert_allclose(trajectory(ours, *names), trajectory(theirs, *names), rtol=1e-5, atol=1e-6)
    expected = theirs.model("last").state_dict()
    for key, tensor in ours.model("last").state_dict().items():
        torch.testing.assert_close(tensor, expected[key], rtol=1e-5, atol=1e-6)
    for one, other in zip(ours.metrics, theirs.metrics, strict=True):
        if "train" in one:
            assert one["validation"] == pytest.approx(other["validation"], rel=1e-4)
            assert one["train"]["examples"] == 200
    assert ours.result["test"] == pytest.approx(theirs.result["test"], rel=1e-4)
    assert ours.result["steps"] == theirs.result["steps"]


@pytest.mark.parametrize("name", ["rank1", "mean_field"])
def test_with_noise_the_same_trajectory_in_expectation(pair, alone, name):
    """The KL's fall hardly depends on the noise: counted twice, or half, it would be twice or half as much."""
    ours, theirs = Run(pair[0] / name), alone(name)
    kl, expected = trajectory(ours, "kl").flatten(), trajectory(theirs, "kl").flatten()
    assert kl[0] == expected[0]
    np.testing.assert_allclose(kl[0] - kl[1:], expected[0] - expected[1:], rtol=0.15)
    np.testing.assert_allclose(trajectory(ours, "nll"), trajectory(theirs, "nll"), rtol=0.15)


def test_processes_draw_their_own_noise_and_share_their_weights(pair):
    first, second = (rank["jobs"] for rank in pair[1])
    for name in CONFIGS:
        noisy = name in ("rank1", "mean_field")
        assert (first[name]["outputs"] != second[name]["outputs"]) == noisy, name
        assert first[name]["weights"] == second[name]["weights"], name


def test_only_the_first_process_writes(pair):
    first, second = pair[1]
    assert first["writes"]
    assert second["writes"] == []


def test_resumed_equals_uninterrupted(pair):
    folder = pair[0]
    assert weights(folder / "pieces", 3) == weights(folder / "rank1", 3)
    assert Run(folder / "pieces").result["test"] == Run(folder / "rank1").result["test"]


def test_one_process_continues_what_two_began(pair, alone, tmp_path):
    shutil.copytree(pair[0] / "left", tmp_path / "left")
    run = fit(CONFIGS["deterministic"], tmp_path / "left", resume=True, quiet=True)
    expected = alone("deterministic").model("last").state_dict()
    for key, tensor in run.model("last").state_dict().items():
        torch.testing.assert_close(tensor, expected[key], rtol=1e-5, atol=1e-6)


def test_scores_are_those_of_the_stored_model(pair):
    """Processes have statistics of their own in norm layers; the ones that are stored are the ones that count."""
    run = Run(pair[0] / "normed", trust="dp_worker:normed")
    data = load_data("digits").limited(None, 100)
    scores = evaluate(run.model("last"), data.validation, data, run.config.evaluation, seed=0)
    assert run.metrics[-1]["validation"] == pytest.approx(scores, rel=1e-5)


def test_trackers(pair):
    pytest.importorskip("tensorboard")
    assert len(list((pair[0] / "tracked").rglob("events.out.tfevents.*"))) == 1


def test_accelerate_launch(alone, tmp_path):
    """On CPUs its launcher would need MPI; with --multi_gpu the processes find no GPU and take gloo all the same."""
    jobs = [{"name": "run", "config": CONFIGS["deterministic"]}]
    words = ["--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--main_process_port", "0"]
    launch(tmp_path, jobs, "accelerate.commands.launch", *words)
    ours, theirs = Run(tmp_path / "runs" / "run"), alone("deterministic")
    np.testing.assert_allclose(trajectory(ours, "loss"), trajectory(theirs, "loss"), rtol=1e-5)
