"""Runs whose likelihood is not that of the data: trained, scored, predicted from a file, and put together."""

import numpy as np
import pytest
from scipy import stats

from slimbayes.data.dataset import Task
from slimbayes.data.registry import load_data
from slimbayes.training import Run, fit
from slimbayes.training.config import TrainConfig
from slimbayes.training.models import likelihood_of, network_task
from slimbayes.training.predicting import predict_file

NET = {"name": "mlp", "hidden": [8]}


def write_counts(folder):
    """Write a table of counts whose logarithmic mean is 1 + x."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=400)
    rows = "".join(f"{a:.4f},{y}\n" for a, y in zip(x, generator.poisson(np.exp(1 + x)), strict=True))
    (folder / "visits.csv").write_text("x,y\n" + rows)


@pytest.mark.parametrize("likelihood", [None, "negative_binomial"])
def test_counts_are_a_task_of_tables(likelihood, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_counts(tmp_path)
    config = {
        "data": {"name": "table", "path": "visits.csv", "target": "y", "task": "poisson"},
        "net": NET,
        "method": "deterministic",
        "likelihood": likelihood,
        "epochs": 40,
        "optimiser": {"name": "adam", "lr": 0.02},
    }
    run = fit(config, tmp_path / "run", quiet=True)
    assert run.model().likelihood.name == (likelihood or "poisson")
    assert set(run.result["test"]) == {"nll", "rmse"}
    assert run.result["test"]["nll"] < 2.2  # a constant mean has 2.7, the true one 1.9
    (tmp_path / "new.csv").write_text("x\n-1\n0\n1\n")
    columns = predict_file(Run(tmp_path / "run"), tmp_path / "new.csv", level=0.9)
    np.testing.assert_allclose(columns["mean"], np.exp([0, 1, 2]), rtol=0.3)
    if likelihood is None:
        np.testing.assert_array_equal(columns["high"], stats.poisson.ppf(0.95, columns["mean"]))
        np.testing.assert_allclose(columns["std"], np.sqrt(columns["mean"]), rtol=1e-4)


@pytest.mark.parametrize(
    ("data", "likelihood", "scores"),
    [
        ("diabetes", {"name": "student_t", "df": 3.0}, {"nll", "rmse"}),
        ("iris", {"name": "ordinal"}, {"nll", "accuracy", "ece"}),
        ("iris", {"label_smoothing": 0.1, "class_weight": [1, 1, 2]}, {"nll", "accuracy", "ece"}),
    ],
)
def test_likelihoods_that_fit_the_task(data, likelihood, scores, tmp_path):
    run = fit(
        {"data": data, "net": NET, "method": "deterministic", "likelihood": likelihood, "epochs": 2},
        tmp_path,
        quiet=True,
    )
    assert set(run.result["test"]) == scores
    assert run.model().likelihood.name == likelihood.get("name", "categorical")


def test_the_network_has_the_outputs_that_the_likelihood_needs():
    def outputs(task, likelihood):
        config = TrainConfig(data="iris", net="mlp", likelihood=likelihood)
        return network_task(config, task).outputs, likelihood_of(config, task)

    assert outputs(Task("categorical", 3, (4,)), "ordinal") == (1, {"name": "ordinal", "levels": 3})
    assert outputs(Task("gaussian", 2, (4,)), {"name": "student_t", "noise": "predicted"})[0] == 4
    assert outputs(Task("gaussian", 2, (4,)), {"outputs": 2})[0] == 2
    assert outputs(Task("poisson", 1, (4,)), None) == (1, "poisson")


@pytest.mark.parametrize(
    ("task", "likelihood", "words"),
    [
        ("gaussian", "poisson", ["'student_t'", "'poisson'", "gaussian task"]),
        ("gaussian", "cox", ["'cox'"]),
        ("categorical", {"name": "ordinal", "level": 3}, ["'level'", "'levels'"]),
    ],
)
def test_likelihoods_that_do_not_fit_are_named(task, likelihood, words):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        likelihood_of(TrainConfig(data="iris", net="mlp", likelihood=likelihood), Task(task, 3, (4,)))
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("value", [-1.0, 0.5])
def test_targets_that_are_no_counts_are_named(value, tmp_path):
    np.savez(tmp_path / "my.npz", x_train=np.zeros((3, 1)), y_train=np.array([0.0, 2.0, value]))
    with pytest.raises(ValueError, match=f"poisson task should be counts, but got {value:g}"):
        load_data("arrays", tmp_path, path="my.npz", task="poisson")
    (tmp_path / "my.csv").write_text("x,y\n" + f"1,0\n2,2\n3,{value}\n" * 5)
    with pytest.raises(ValueError, match=f"'y' of a poisson task to be counts.*{value:g}.*gaussian"):
        load_data("table", tmp_path, path="my.csv", target="y", task="poisson")
