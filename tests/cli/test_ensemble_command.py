"""The command ``slimbayes ensemble``."""

import csv
import json

import numpy as np
import pytest
from command_line import config_in, invoke

from slimbayes.training import Run

CONFIG = """
data: iris
net: {name: mlp, hidden: [8]}
epochs: 2
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    return config_in(tmp_path, CONFIG, monkeypatch)


def test_from_a_file_to_predictions(config, tmp_path):
    outcome = invoke("ensemble", config, "optimiser.lr=1e-2", "-o", "two", "--members", 2)
    assert outcome.exit_code == 0, outcome.output
    result = json.loads((tmp_path / "two/result.json").read_text())
    assert f"test: nll {result['test']['nll']:.4f}, accuracy {result['test']['accuracy']:.4f}" in outcome.stdout
    finished = [line.split(":")[0] for line in outcome.stderr.splitlines() if "finished" in line]
    assert finished == ["1/2 0 finished", "2/2 1 finished"]
    assert Run.open("two").model().members == 2
    more = invoke("ensemble", config, "optimiser.lr=1e-2", "-o", "two", "--members", 3, "--json", "--quiet")
    assert more.exit_code == 0, more.output
    assert len(json.loads(more.stdout)["members"]) == 3
    assert more.stderr == ""
    np.save(tmp_path / "flowers.npy", np.array([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]]))
    predicted = invoke("predict", "two", "flowers.npy")
    assert predicted.exit_code == 0, predicted.output
    assert len(list(csv.DictReader(predicted.stdout.splitlines()))) == 2


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["method=rank1"], 2, "Use method=deep_ensemble"),
        (["--on", "rey"], 2, "Did you mean 'ray'?"),
        (["optimiser.lr=1e30", "optimiser.name=sgd", "batch_size=8"], 3, "not finite"),
        (["net=lenet", "--workers", 1], 1, "1 of 1 members could not be trained"),
    ],
)
def test_exit_codes(config, words, code, told):
    outcome = invoke("ensemble", config, *words, "--members", 1, "--out", "out", "--quiet")
    assert outcome.exit_code == code, outcome.output
    assert told in outcome.stderr


def test_help_teaches():
    text = invoke("ensemble", "--help").stdout
    assert all(word in text for word in ("net.share=4", "slimbayes predict runs/four", "members/0"))
