"""Configurations: YAML, overrides, and faults that name the nearest right key."""

import pytest
import yaml
from pydantic import ValidationError

from slimbayes.training.config import TrainConfig
from slimbayes.training.parsing import as_yaml, load_config, parse_config, with_overrides

SMALLEST = {"data": "digits", "net": "mlp"}


def test_defaults_are_filled_in_and_read_back(tmp_path):
    config = parse_config({**SMALLEST, "method": {"name": "rank1", "members": 2}, "data": {"name": "digits", "x": 1}})
    assert config.method.options == {"members": 2}
    assert config.data.options == {"x": 1}
    assert config.epochs == 10
    path = tmp_path / "config.yaml"
    path.write_text(as_yaml(config.as_json()))
    assert load_config(path) == config
    assert yaml.safe_load(path.read_text())["optimiser"]["lr"] == 0.001


@pytest.mark.parametrize(
    ("text", "value"), [("1e-3", 1e-3), ("1.5E+2", 150.0), ("-2e1", -20.0), (".5e0", 0.5), ("3", 3)]
)
def test_numbers_with_exponents_are_numbers(text, value, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(f"data: digits\nnet: mlp\nmethod: {{name: rank1, prior_std: {text}}}\n")
    found = load_config(path).method.options["prior_std"]
    assert found == value
    assert type(found) is type(value)
    assert with_overrides(SMALLEST, [f"method.prior_std={text}"])["method"]["prior_std"] == value


OVERRIDES = [
    (["optimiser.lr=0.1"], {"optimiser": {"lr": 0.1}}),
    (["method=k_tied"], {"method": "k_tied"}),
    (["net.hidden=[3, 4]"], {"net": {"name": "mlp", "hidden": [3, 4]}}),
    (["data.folder=/a b/c", "seed=7"], {"data": {"name": "digits", "folder": "/a b/c"}, "seed": 7}),
    (["optimiser.clip_norm="], {"optimiser": {"clip_norm": None}}),
    (["trackers=[tensorboard]"], {"trackers": ["tensorboard"]}),
]


@pytest.mark.parametrize(("words", "changes"), OVERRIDES)
def test_overrides(words, changes):
    before = dict(SMALLEST)
    assert with_overrides(before, words) == {**SMALLEST, **changes}
    assert before == SMALLEST


@pytest.mark.parametrize("word", ["lr", "=3", "net.hidden=[3"])
def test_broken_overrides_are_named(word):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        with_overrides(SMALLEST, [word])
    assert repr(word) in str(error.value)


FAULTS = {
    "unknown key": ({"epoch": 3}, ["epoch: there is no such key", "'epochs'"]),
    "unknown key inside": ({"optimiser": {"weight_decy": 1}}, ["optimiser.weight_decy", "'weight_decay'"]),
    "nothing near": ({"evaluation": {"zzz": 1}}, ["evaluation.zzz", "samples, every, batch_size, test"]),
    "wrong choice": (
        {"optimiser": "lbfgs"},
        ["optimiser.name", "'sgd', 'adam', 'adamw', 'sgld' or 'sghmc'", "'lbfgs'"],
    ),
    "wrong number": ({"batch_size": 0}, ["batch_size", "greater than or equal to 1", "0"]),
    "wrong type": ({"seed": "first"}, ["seed", "'first'"]),
    "two lengths": ({"epochs": 1, "steps": 2}, ["`epochs` or `steps`, not both"]),
    "milestones out of order": ({"schedule": {"name": "step", "at": [3, 1]}}, ["schedule.at", "in order", "[3, 1]"]),
    "epochs of a schedule that has no steps": ({"schedule": {"at": [3]}}, ["schedule", "name: step", "'constant'"]),
    "steps without epochs": ({"schedule": "step"}, ["schedule", "at: [80, 160]"]),
    "not finite": ({"annealing": {"fraction": float("inf")}}, ["annealing.fraction", "finite", "inf"]),
    "seed": ({"seed": 2**63}, ["seed", "less than"]),
    "several": ({"epochs": 0, "batchsize": 3}, ["2 faults", "epochs", "batchsize", "'batch_size'"]),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named(name):
    changes, words = FAULTS[name]
    with pytest.raises(ValueError) as error:  # noqa: PT011
        parse_config({**SMALLEST, **changes})
    for word in words:
        assert word in str(error.value)


def test_missing_sections_are_named():
    with pytest.raises(ValueError, match=r"net: it is missing"):
        parse_config({"data": "digits"})


def test_values_are_checked_when_they_are_set():
    config = TrainConfig(**SMALLEST)
    with pytest.raises(ValidationError):
        config.batch_size = -1


@pytest.mark.parametrize(("text", "words"), [("- a\n- b\n", "keys and values"), ("a: [", "not YAML")])
def test_files_that_are_no_configuration(text, words, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        load_config(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*nowhere\.yaml"):
        load_config(tmp_path / "nowhere.yaml")
