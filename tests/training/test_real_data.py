"""One short run on the real files of each set, for each method: ``SLIMBAYES_DATA`` names the data folder."""

import os
from functools import cache

import pytest

import slimbayes as sb
from slimbayes.data.registry import load_data
from slimbayes.methods.registry import trained_methods

FOLDER = os.environ.get("SLIMBAYES_DATA")
SETS = {
    "mnist": {"data": "mnist", "net": {"name": "mlp", "hidden": [50]}},
    "cifar10": {"data": "cifar10", "net": {"name": "lenet", "kernel": 3}},
    "imdb": {"data": "imdb", "net": {"name": "lstm", "embedding": 16, "hidden": 16}},
    "physionet2012": {"data": "physionet2012", "net": {"name": "series", "hidden": 16}},
    "physionet2012 events": {
        "data": {"name": "physionet2012", "view": "events"},
        "net": {"name": "records", "embedding": 8, "hidden": 16, "dense": 16},
    },
}
SHORT = {"epochs": 2, "batch_size": 64, "annealing": "none", "optimiser": {"name": "adam", "lr": 3e-3}}
#: What a few steps must be told so that a posterior has something in it, and so that chains go downhill.
OWN = {
    "swag": {"collect": {"start": 0.2, "every": 0.25, "draws": 2}},
    "subspace": {"collect": {"start": 0.2, "every": 0.25, "draws": 2}},
    "sgmcmc": {"optimiser": {"name": "sghmc", "lr": 0.1, "temperature": 0.01}},
}


@cache
def load_once(name, folder, **options):
    """Reading all files of a set takes longer than the run."""
    return load_data(name, folder, **options)


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER, reason="needs the real files: set SLIMBAYES_DATA")
@pytest.mark.parametrize("method", trained_methods())
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in SETS])
def test_a_short_run(name, method, tmp_path, monkeypatch):
    monkeypatch.setattr("slimbayes.training.models.load_data", load_once)
    config = {**SETS[name], **SHORT, "method": method, **OWN.get(method, {})}
    data = {"name": config["data"]} if isinstance(config["data"], str) else config["data"]
    config["data"] = {**data, "folder": FOLDER, "train_limit": 512, "evaluation_limit": 256}
    run = sb.training.fit(config, tmp_path / "run", quiet=True)
    epochs = [line for line in run.metrics if "train" in line]
    if (name, method) != ("imdb", "sgmcmc"):  # a chain moves as SGD does, which takes an LSTM nowhere in 16 steps
        assert epochs[1]["train"]["loss"] < epochs[0]["train"]["loss"]
    several = {"disagreement", "member_accuracy"} if run.model().members > 1 else set()
    assert set(run.result["test"]) == {"nll", "accuracy", "ece"} | several
    assert run.model().method == method
