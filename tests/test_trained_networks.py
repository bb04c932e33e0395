"""What ``trained=True`` sets, and the page that says what it does."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import slimbayes as sb
from reproductions import fitted_posteriors
from reproductions.trained_networks import METHODS, table
from slimbayes.data.digits import load_digits
from slimbayes.demo import trained_network
from slimbayes.methods.registry import _filled, get_method
from slimbayes.training.config import Method
from slimbayes.training.models import build_model

ROOT = Path(__file__).parent.parent
STORED = ROOT / "reproductions" / "results" / "trained-networks.json"


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


@pytest.mark.parametrize("name", METHODS)
def test_the_methods_values_are_set_and_stored_as_options(name, tmp_path):
    values = _filled(get_method(name).for_trained, {})
    net = network()
    model = getattr(sb, name)(net, trained=True)
    if name == "mc_dropout":
        assert model.options["rate"] == values["rate"]
    else:
        assert {key: model.options[key] for key in values} == values
    assert "trained" not in model.options
    plain = getattr(sb, name)(net)
    assert any(plain.options[key] != value for key, value in values.items())
    model.save_pretrained(tmp_path)
    assert sb.load(tmp_path, network()).options == model.options
    configured = build_model(Method(name=name, trained=True), lambda: net)
    assert configured.options == model.options


@pytest.mark.parametrize("name", [name for name in METHODS if name != "mc_dropout"])
def test_options_that_are_given_win(name):
    values = _filled(get_method(name).for_trained, {})
    option = next(key for key in values if key not in ("init", "prior"))
    model = getattr(sb, name)(network(), trained=True, **{option: 0.4321})
    assert model.options[option] == 0.4321
    others = {key: value for key, value in values.items() if key != option}
    assert {key: model.options[key] for key in others} == others
    assert sb.mc_dropout(network(), 0.3, trained=True).options["rate"] == 0.3  # by position, too


@pytest.mark.parametrize("name", ["rank1", "mean_field", "k_tied", "mc_dropout"])
def test_at_its_location_the_model_is_the_network(name):
    net, x = network(), torch.randn(5, 6)
    outputs = getattr(sb, name)(net, trained=True)(x, samples=0)
    torch.testing.assert_close(outputs, net(x).expand_as(outputs))


def test_cauchy_factors_leave_a_trained_network_its_accuracy():
    """Before, they started with a scale of 0.1, whose outliers left a ResNet-20 at chance."""
    net = trained_network(0)
    images, labels = load_digits().test
    for options in ({}, {"noise": "shared"}):
        model = sb.rank1(net, family="cauchy", trained=True, clip=10.0)
        found = model.predict(images, samples=4, seed=0, likelihood="categorical", **options).label
        assert (found == labels).float().mean() > (net(images).argmax(1) == labels).float().mean() - 0.01


def test_the_page_has_the_stored_numbers():
    stored = json.loads(STORED.read_text())
    assert stored["commit"]
    assert stored["settings"]["seeds"] >= 3
    assert table(stored) in (ROOT / "docs" / "trained-networks.md").read_text()


@pytest.mark.parametrize("path", sorted(fitted_posteriors.RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_the_page_has_the_stored_posteriors(path):
    stored = json.loads(path.read_text())
    assert path.stem in fitted_posteriors.NETWORKS
    assert set(stored["rows"]) <= set(fitted_posteriors.ROWS)
    assert all(row["provenance"]["commit"] for row in stored["rows"].values())
    page = (ROOT / "docs" / "trained-networks.md").read_text()
    assert fitted_posteriors.table(stored) in page
    assert fitted_posteriors.verdict(stored) in page


def test_a_row_of_posteriors_has_only_means_of_all_parts():
    stored = {"rows": {"a": {"parts": {"clean": {}, "fog": {}}, "seconds": 2.4, "numbers": 1000, "temperature": 2.0}}}
    for kind, nll in (("bare", 0.5), ("tempered", 0.25)):
        for part in ("clean", "fog"):
            stored["rows"]["a"]["parts"][part][kind] = {"accuracy": 0.9, "nll": nll, "ece": 0.1}
    _, _, bare, tempered = fitted_posteriors.table(stored).splitlines()
    assert bare == "| a |  | 0.900 | 0.500 | 0.100 |  |  |  |  | 2 | 1,000 |"
    assert tempered == "|  | 2.00 | 0.900 | 0.250 | 0.100 |  |  |  |  |  |  |"
