"""The command ``slimbayes evaluate``, on runs that take a moment to train."""

import json
import re
import shutil

import pytest
from command_line import invoke

from slimbayes.evaluation import evaluating
from slimbayes.training import fit

NET = {"net": {"name": "mlp", "hidden": [5]}, "epochs": 1}
CLEAN = ("--corruptions", "none", "--ood", "none")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for data, method in (("iris", "rank1"), ("diabetes", "deterministic"), ("wine", "deep_ensemble")):
        fit({"data": data, "method": method, **NET}, folder / data, quiet=True)
    return folder


@pytest.fixture
def runs(trained, tmp_path):
    """A copy of its own for each test, which writes into it."""
    return shutil.copytree(trained, tmp_path / "runs")


def test_a_folder_of_runs_on_several_data_sets(runs):
    result = invoke("evaluate", runs, "--samples", "1,3", "--severities", "5")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split()[:4] == ["run", "title", "draws", "NLL"]
    assert {line.split()[0] for line in lines[1:]} == {"iris", "diabetes", "wine"}
    stored = {one: json.loads((runs / one / "evaluation.json").read_text()) for one in ("iris", "diabetes", "wine")}
    assert {one: content["data"] for one, content in stored.items()} == {one: one for one in stored}
    assert all(content["complete"] and list(content["results"]) == ["1", "3"] for content in stored.values())
    assert set(stored["iris"]["results"]["1"]["corrupted"]) == {"missing", "noise", "drift"}
    assert stored["diabetes"]["results"]["1"]["ood"] == {}


def test_by_default_each_method_gets_enough_draws(runs):
    result = invoke("evaluate", runs, *CLEAN)
    assert result.exit_code == 0, result.output
    draws = {line.split()[0]: re.split(r"  +", line)[2] for line in result.stdout.splitlines()[1:]}
    assert draws == {"iris": "8", "diabetes": "1", "wine": "4"}  # rank-1 of 4 members, one network, 4 networks
    assert list(json.loads((runs / "iris" / "evaluation.json").read_text())["results"]) == ["2"]


def test_json_and_the_title(runs):
    result = invoke("evaluate", runs / "iris", *CLEAN, "--title", "ours", "--json")
    (content,) = json.loads(result.stdout)
    assert content == json.loads((runs / "iris" / "evaluation.json").read_text())
    assert (content["title"], content["settings"]["corruptions"]) == ("ours", "none")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--samples", "x"), "--samples.*numbers separated by commas, but got 'x'"),
        (("--samples", "0"), "samples.*at least 1, but got 0"),
        (("--severities", "6"), "severities.*from 1 to 5, but got 6"),
        (("--corruptions", "fog"), "one of 'missing', 'noise', 'drift', but got 'fog'"),
        (("--corruptions", "official"), "only CIFAR-10, CIFAR-100 and ImageNet"),
        (("--ood", "svhn"), "one of 'permuted', 'noise', but got 'svhn'"),
    ],
)
def test_wrong_options_are_told_before_anything_is_written(runs, options, message):
    result = invoke("evaluate", runs / "iris", *options)
    assert result.exit_code == 2
    assert re.search(message, " ".join(result.stderr.split()))
    assert not (runs / "iris" / "evaluation.json").exists()


def test_an_interruption_says_how_to_go_on_and_loses_nothing(runs, monkeypatch):
    options = ("--samples", "2", "--severities", "1,5")
    assert invoke("evaluate", runs / "iris", *options).exit_code == 0
    whole = json.loads((runs / "iris" / "evaluation.json").read_text())
    seen, predict = [], evaluating.predict

    def interrupted(*args, **kwargs):
        seen.append(kwargs["where"])
        if len(seen) == 4:
            raise KeyboardInterrupt
        return predict(*args, **kwargs)

    monkeypatch.setattr(evaluating, "predict", interrupted)
    result = invoke("evaluate", runs / "iris", *options, "--fresh")
    assert result.exit_code != 0
    assert "The same command goes on" in result.stderr
    begun = json.loads((runs / "iris" / "evaluation.json").read_text())
    assert not begun["complete"]
    assert [len(one) for one in begun["results"]["2"]["corrupted"].values()] == [2]
    monkeypatch.setattr(evaluating, "predict", predict)
    assert invoke("evaluate", runs, *options).exit_code == 0  # now beside others
    assert json.loads((runs / "iris" / "evaluation.json").read_text())["results"] == whole["results"]


def test_a_run_that_was_trained_further_is_not_gone_on_with(runs):
    assert invoke("evaluate", runs / "wine", *CLEAN).exit_code == 0
    weights = next((runs / "wine" / "checkpoints").glob("*/model.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-2] ^= 1
    weights.write_bytes(content)
    about = weights.with_name("config.json")
    about.write_text(json.dumps({**json.loads(about.read_text()), "sha256": None, "checksum": None}))
    result = invoke("evaluate", runs / "wine", *CLEAN)
    assert result.exit_code == 2
    assert "the weights have changed since" in " ".join(result.stderr.split())
    assert invoke("evaluate", runs / "wine", *CLEAN, "--fresh").exit_code == 0


def test_what_is_no_run(tmp_path):
    result = invoke("evaluate", tmp_path)
    assert (result.exit_code, "neither a run nor a saved model" in result.stderr) == (2, True)
