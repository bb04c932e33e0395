"""Tuning: what is tried, what is ended early, what is chosen, and that nothing is lost."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from training_runs import small

from slimbayes.training import Run, fit
from slimbayes.training._search_space import default_space
from slimbayes.training.config import TrainConfig
from slimbayes.training.parsing import load_config, parse_config
from slimbayes.training.tuning import tune

LR = {"optimiser.lr": {"low": 1e-4, "high": 0.1, "log": True}}


def content(trials=3, space=LR, epochs=2, **more):
    return small(epochs=epochs, tune={"trials": trials, "space": space, **more})


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    return tune(content(), folder)


def test_each_trial_is_a_run_and_the_first_is_the_configuration_itself(tuned):
    assert [row["number"] for row in tuned.rows] == [0, 1, 2]
    assert tuned.rows[0]["values"] == {"optimiser.lr": 0.001}
    for row in tuned.rows:
        run = Run.open(tuned.folder / row["folder"])
        assert run.config.optimiser.lr == row["values"]["optimiser.lr"]
        assert run.result["validation"]["nll"] == row["nll"]
        assert run.model().members == 4
    with (tuned.folder / "trials.csv").open() as file:
        rows = [*csv.DictReader(file)]
    assert [float(row["optimiser.lr"]) for row in rows] == [row["values"]["optimiser.lr"] for row in tuned.rows]


def test_test_examples_are_never_looked_at(tuned):
    assert [Run(tuned.folder / row["folder"]).result["test"] for row in tuned.rows] == [None] * 3


def test_the_best_configuration_trains_to_the_score_that_it_was_chosen_for(tuned, tmp_path):
    best = min(tuned.rows, key=lambda row: row["nll"])
    assert tuned.best == best
    config = load_config(tuned.folder / "best.yaml")
    assert config.evaluation.test
    assert config.optimiser.lr == best["values"]["optimiser.lr"]
    result = fit(config, tmp_path, quiet=True).result
    assert result["validation"]["nll"] == best["nll"]
    assert result["test"] is not None


def test_the_same_call_adds_trials_and_another_configuration_is_refused(tuned):
    before = tuned.rows
    seen = []
    more = tune(content(4), tuned.folder, told=lambda rows, trials: seen.append((len(rows), trials)))
    assert more.rows[:3] == before
    assert seen == [(4, 4)]
    assert str(more).splitlines()[0].split() == ["trial", "state", "validation", "NLL", "epochs", "optimiser.lr"]
    with pytest.raises(ValueError, match="'epochs' differ.*another folder"):
        tune(content(epochs=3), tuned.folder)
    with pytest.raises(ValueError, match=r"'tune.space' differ"):
        tune(content(space={"optimiser.lr": [0.1, 0.2]}), tuned.folder)


@pytest.mark.slow
@pytest.mark.parametrize("pruner", ["median", "hyperband"])
def test_hopeless_trials_are_ended_early(pruner, tmp_path):
    """Rates of 1e-9 learn nothing; of the others, the pruners must leave some."""
    space = {"optimiser.lr": [0.01, 1e-9]}
    config = small(epochs=5, method="deterministic", optimiser={"lr": 0.01}, tune={"trials": 9, "space": space})
    config["tune"]["pruner"] = pruner
    tuning = tune(config, tmp_path)
    assert tuning.best["values"] == {"optimiser.lr": 0.01}
    early = [row for row in tuning.rows if row["state"] == "ended early"]
    assert all(row["epochs"] < 5 and Run(tmp_path / row["folder"]).result is None for row in early)
    if pruner == "median":
        late = [row for row in tuning.rows[5:] if row["values"]["optimiser.lr"] == 1e-9]
        assert [row["state"] for row in late] == ["ended early"] * len(late)


def test_a_trial_that_diverges_has_failed_and_the_others_go_on(tmp_path):
    space = {"optimiser.lr": [0.01, 1e30]}
    config = small(epochs=1, method="deterministic", optimiser={"name": "sgd", "lr": 1e30})
    tuning = tune({**config, "tune": {"trials": 6, "space": space}}, tmp_path)
    assert tuning.rows[0]["state"] == "failed"
    assert "not finite" in tuning.rows[0]["error"]
    assert tuning.best["values"] == {"optimiser.lr": 0.01}


def test_the_default_space_is_around_the_configuration():
    space = default_space(parse_config(small(method={"name": "mc_dropout"}, optimiser={"lr": 0.02})))
    assert list(space) == ["optimiser.lr", "net.hidden", "method.rate"]
    assert (space["optimiser.lr"].low, space["optimiser.lr"].high) == (0.002, 0.2)
    assert (space["net.hidden"].width, space["net.hidden"].depth) == ((4, 32), (1, 4))
    lstm = default_space(TrainConfig(data="imdb", net={"name": "lstm", "hidden": 32}, method="deterministic"))
    assert (lstm["net.hidden"].low, lstm["net.hidden"].high) == (8, 64)


def test_training_takes_no_notice_of_the_key(tmp_path):
    run = fit(content(), tmp_path / "run", quiet=True)
    assert "tune" not in run.config.as_json()
    fit(small(epochs=2), tmp_path / "run", resume=True, quiet=True)  # which is the same configuration


WRONG = {
    "no validation": ({"data": {"name": "digits", "validation": 0}}, "validation examples.*data.validation"),
    "impossible value": ({"tune": {"space": {"net.hidden": [[0]]}}}, r"tune.space.net.hidden: \[0\] is not possible"),
    "unknown key": (
        {"tune": {"space": {"optimiser.lrr": [1]}}},
        r"tune.space.optimiser.lrr: 1 is not possible[^$]*'lr'",
    ),
    "range": ({"tune": {"space": {"optimiser.lr": {"low": 1, "high": 0.1}}}}, "low < high"),
    "log of zero": ({"tune": {"space": {"optimiser.lr": {"low": 0, "high": 1, "log": True}}}}, "0 < low"),
    "pruner": ({"tune": {"pruner": "medain"}}, "tune.pruner"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_before_anything_is_trained(name, tmp_path):
    changes, words = WRONG[name]
    with pytest.raises(ValueError, match=words):
        tune({**small(epochs=1), **changes}, tmp_path / "out")
    assert not (tmp_path / "out" / "trials").exists()


def test_another_process_and_other_files_are_refused(tmp_path):
    (tmp_path / "study.db").touch()
    with pytest.raises(FileExistsError, match="study.db.*another folder"):
        tune(content(), tmp_path)


@pytest.mark.slow
def test_kills_lose_nothing(tmp_path):
    """After SIGKILL at random moments the trials, their order and their weights are those of a call that was let be."""
    worker = Path(__file__).with_name("tune_kill_worker.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, worker, tmp_path], env=environment, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] >= 5
    assert {"finished", "ended early"} <= set(found["states"])
