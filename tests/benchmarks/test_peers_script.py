"""What the script that measures other libraries does without them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.networks import BenchNetwork, conv_net, dense_net

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "benchmarks"
CONV = BenchNetwork("conv", "conv", lambda: conv_net(2), (3, 8, 8), 8, True)
DENSE = BenchNetwork("dense", "dense", lambda: dense_net(4), (4,), 8)


def pins(path):
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("==") for line in lines)


@pytest.fixture
def scripts():
    from benchmarks import naive, peer_cases, peer_environment, peers

    return {"naive": naive, "cases": peer_cases, "environment": peer_environment, "peers": peers}


def layer_with_factors(scripts, layer, spread=0.3, rho=-1.0):
    return scripts["naive"].NaiveRank1(layer, members=2, spread=spread, rho=rho).double()


@pytest.mark.parametrize("layer", [nn.Linear(3, 2), nn.Conv2d(3, 2, 1, bias=False), nn.Conv2d(3, 2, 1)])
def test_outputs_of_the_naive_layer_have_the_moments_of_their_distribution(scripts, layer):
    torch.manual_seed(0)
    naive = layer_with_factors(scripts, layer)
    draws, x = 20_000, torch.randn(3).double()
    rows = x.expand(2 * draws, 3)
    rows = rows if isinstance(layer, nn.Linear) else rows[..., None, None]
    y = naive(rows).flatten(1).unflatten(0, (2, draws))
    # Of r z + b, with r and z independent: z is the product before the output factor.
    scale = torch.tensor(-1.0).double().exp().log1p()
    weight = naive.layer.weight.flatten(1)
    z, spread_of_z = (x * naive.input_loc) @ weight.T, scale**2 * (x**2) @ (weight.T**2)
    mean = naive.output_loc * z + (0 if naive.bias is None else naive.bias)
    variance = naive.output_loc**2 * spread_of_z + scale**2 * (z**2 + spread_of_z)
    # Five standard errors; the kurtosis of a product of two normals is at most 9.
    assert ((y.mean(1) - mean).abs() < 5 * (variance / draws).sqrt()).all()
    torch.testing.assert_close(y.var(1), variance, rtol=5 * (8 / draws) ** 0.5, atol=0)


def test_rows_of_the_naive_layer_are_independent(scripts):
    torch.manual_seed(0)
    y = layer_with_factors(scripts, nn.Linear(3, 2))(torch.ones(6, 3).double())
    assert len(y.unique(dim=0)) == 6


def test_kl_of_the_naive_layer_is_the_textbooks(scripts):
    naive = layer_with_factors(scripts, nn.Linear(3, 2))
    total = 0.0
    for loc, rho in ((naive.input_loc, naive.input_rho), (naive.output_loc, naive.output_rho)):
        sigma = rho.exp().log1p()
        total += ((0.1 / sigma).log() + (sigma**2 + (loc - 1) ** 2) / (2 * 0.1**2) - 0.5).sum()
    torch.testing.assert_close(scripts["naive"].naive_kl(nn.Sequential(naive, nn.ReLU())), total)


@pytest.mark.parametrize("network", [CONV, DENSE], ids=lambda network: network.name)
def test_a_step_trains_every_parameter(scripts, network):
    cases = scripts["cases"]
    made = []

    def build(network):
        made.append(cases.PEERS["naive rank-1 per example"](network))
        return made[0]

    step = cases.peer_step(network, build)
    model = made[0].model
    converted = [part for part in model.modules() if isinstance(part, scripts["naive"].NaiveRank1)]
    assert len(converted) == sum(isinstance(part, (nn.Linear, nn.Conv2d)) for part in network.build().modules())
    before = [parameter.clone() for parameter in model.parameters()]
    step()
    assert not any(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("estimator", ["Flipout", "Reparameterization"])
def test_our_mean_field_trains_beside_that_of_peers(scripts, estimator):
    peer = scripts["cases"].PEERS[f"slimbayes mean_field {estimator}"](DENSE)
    assert peer.model.options["estimator"] == estimator.lower()
    assert peer.model.options["sample_per"] == "batch"
    before = [parameter.clone() for parameter in peer.model.parameters()]
    scripts["cases"].peer_step(DENSE, lambda network: peer)()
    assert not any(torch.equal(a, b) for a, b in zip(before, peer.model.parameters(), strict=True))


def test_a_peer_with_idle_parameters_is_refused(scripts):
    def build(network):
        model = network.build()
        model.unused = nn.Parameter(torch.zeros(1))
        return scripts["cases"].Peer(model, None, network.rows)

    with pytest.raises(RuntimeError, match="No gradient reaches unused"):
        scripts["cases"].peer_step(DENSE, build)


def test_layers_are_replaced_at_any_depth(scripts):
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 2))
    new = scripts["cases"].replace_layers(model, lambda part: nn.Identity() if isinstance(part, nn.Linear) else None)
    assert [type(part).__name__ for part in new.modules() if not list(part.children())] == [
        "Identity",
        "ReLU",
        "Identity",
    ]


def test_operators_that_torchvision_describes_exist_once_they_are_defined(scripts):
    library = scripts["cases"].define_schemas()
    try:
        for name in ("nms", "qnms"):
            schema = str(getattr(torch.ops.torchvision, name).default._schema)
            assert schema == f"torchvision::{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.register_fake(f"torchvision::{name}", lambda *inputs: inputs[0], lib=library)
    finally:
        library._destroy()


def test_requirements_are_pinned_and_agree_with_the_constraints():
    wanted, constraints = pins(FOLDER / "requirements.txt"), pins(ROOT / "constraints.txt")
    assert {"bayesian-torch", "tabm", "torch-uncertainty"} <= set(wanted)
    assert wanted["torchvision"] == "0.28.0"
    assert "torch" not in wanted
    assert all(constraints.get(name, version) == version for name, version in wanted.items())
    assert all(re.fullmatch(r"\d+(\.\d+)*", version) for version in wanted.values())


def test_an_environment_is_made_once_for_the_same_pins(scripts, tmp_path, monkeypatch):
    environment, commands = scripts["environment"], []
    monkeypatch.setattr(environment, "_run", lambda *words: commands.append(words))
    monkeypatch.setattr(environment, "_torch", lambda folder: f"{pins(ROOT / 'constraints.txt')['torch']}+cpu")
    (tmp_path / "bin").mkdir()
    environment.make(tmp_path)
    assert commands[0][1:] == ("-m", "venv", str(tmp_path))
    assert commands[1][-4:] == ("-c", str(ROOT / "constraints.txt"), "-e", f"{ROOT}[train]")
    assert commands[2][-3:] == ("--no-deps", "-r", str(FOLDER / "requirements.txt"))
    environment.make(tmp_path)
    assert len(commands) == 3
    (tmp_path / "installed").write_text("other pins")
    environment.make(tmp_path)
    assert len(commands) > 3


def test_another_torch_is_refused(scripts, tmp_path, monkeypatch):
    environment, versions = scripts["environment"], iter(["2.13.0", "2.12.0"])
    monkeypatch.setattr(environment, "_run", lambda *words: None)
    monkeypatch.setattr(environment, "_torch", lambda folder: next(versions))
    with pytest.raises(SystemExit, match=re.escape("Expected torch to stay 2.13.0")):
        environment.make(tmp_path)
    assert not (tmp_path / "installed").exists()


def test_results_name_what_cannot_be_measured(scripts, monkeypatch):
    def absent(network):
        raise ModuleNotFoundError("No module named 'peer'")

    cases = scripts["cases"]
    naive = cases.PEERS["naive rank-1 per example"]
    monkeypatch.setattr(cases, "PEERS", {"absent": absent, "naive": naive})
    monkeypatch.setattr(cases, "PACKAGES", ("torch", "safetensors"))
    results = scripts["peers"].measure([DENSE], 1)
    assert results["failed"] == {"dense": {"absent": "ModuleNotFoundError: No module named 'peer'"}}
    assert list(results["results"]["dense"]) == ["plain", *scripts["peers"].OURS, "naive"]
    assert {frozenset(row) for row in results["results"]["dense"].values()} == {
        frozenset({"seconds", "ratio", "quartiles", "interval"})
    }
    assert {"torch", "safetensors", "slimbayes", "python"} <= set(results["versions"])
    assert re.search(r"^naive +\d", scripts["peers"].table(results), re.MULTILINE)


def test_help_needs_neither_the_environment_nor_torch():
    words = [sys.executable, "-S", "-E", "-m", "benchmarks.peers", "--help"]  # -S: no site-packages
    shown = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert all(option in shown for option in ("--networks", "--rounds", "--store", "--out", "--venv"))


def test_part_of_the_networks_is_not_stored(scripts, capsys):
    assert scripts["peers"].arguments(["--store"]).out == FOLDER / "results" / "peers.json"
    with pytest.raises(SystemExit):
        scripts["peers"].arguments(["--store", "--networks", "mlp_512"])
    assert "all networks" in capsys.readouterr().err
