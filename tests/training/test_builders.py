"""Networks and models from names; what does not fit is named."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import slimbayes as sb
from slimbayes.data.dataset import Task
from slimbayes.methods.registry import trained_methods
from slimbayes.training.config import Annealing, Method, Net, TrainConfig
from slimbayes.training.models import annealing, build_model, build_objective
from slimbayes.training.networks import NETWORKS, build_network

IMAGES = Task("categorical", 7, (3, 32, 32))
TOKENS = Task("bernoulli", 1, (80,), vocabulary=50)
SERIES = Task("bernoulli", 1, (48, 5))

FITTING = {
    "mlp": (IMAGES, {"hidden": [4]}, torch.zeros(2, 3, 32, 32)),
    "lenet": (IMAGES, {"kernel": 3}, torch.zeros(2, 3, 32, 32)),
    "wide_resnet": (IMAGES, {"depth": 10, "width": 1}, torch.zeros(2, 3, 32, 32)),
    "cifar_resnet": (IMAGES, {}, torch.zeros(2, 3, 32, 32)),
    "resnet4": (IMAGES, {}, torch.zeros(2, 3, 32, 32)),
    "resnet50": (Task("categorical", 7, (3, 64, 64)), {}, torch.zeros(2, 3, 64, 64)),
    "lstm": (TOKENS, {"hidden": 4, "embedding": 3}, torch.zeros(2, 80, dtype=torch.long)),
    "series": (SERIES, {"hidden": 4}, torch.zeros(2, 48, 5)),
    "records": (
        Task("bernoulli", 1, (9,), vocabulary=6, context=3),
        {"hidden": 4, "bags": 2, "bag_hours": 24},
        (torch.zeros(2, 9), torch.ones(2, 9, dtype=torch.long), torch.zeros(2, 9), torch.zeros(2, 3)),
    ),
}


@pytest.mark.parametrize("name", FITTING)
def test_networks_have_the_tasks_size(name):
    task, options, x = FITTING[name]
    net = build_network(Net(name=name, **options), task).eval()
    assert net(*(x if isinstance(x, tuple) else (x,))).shape == (2, task.outputs)


def test_every_network_is_listed_above():
    assert set(NETWORKS) == set(FITTING)


WRONG = {
    "unknown network": (IMAGES, {"name": "lenett"}, ["net.name", "'lenet'"]),
    "unknown option": (IMAGES, {"name": "lenet", "kernell": 3}, ["kernell", "'kernel'"]),
    "size that the data fix": (IMAGES, {"name": "lenet", "classes": 3}, ["`net`", "'classes'"]),
    "images wanted": (TOKENS, {"name": "lenet"}, ["(80,)", "mlp"]),
    "tokens wanted": (IMAGES, {"name": "lstm"}, ["lstm", "series"]),
    "tokens unwanted": (TOKENS, {"name": "mlp"}, ["mlp", "lstm"]),
    "series wanted": (IMAGES, {"name": "series"}, ["(3, 32, 32)", "series"]),
    "events wanted": (TOKENS, {"name": "records"}, ["records", "physionet2012"]),
    "no such module": (IMAGES, {"name": "nowhere.at:all"}, ["nowhere.at:all", "package.module:function"]),
    "no such function": (IMAGES, {"name": "math:nothing"}, ["math:nothing"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_named(name):
    task, options, words = WRONG[name]
    with pytest.raises(ValueError) as error:  # noqa: PT011
        build_network(Net(**options), task)
    for word in words:
        assert word in str(error.value)


def own_network(width: int, task: Task) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, width), nn.Linear(width, task.outputs))


def no_network() -> str:
    return "none"


def test_options_that_a_network_of_ones_own_has_not_are_named():
    for options, words in (({"wide": 5}, r"\['wide'\]"), ({}, r"\[\]")):
        with pytest.raises(ValueError, match=rf"options {words} of net .*own_network' do not fit: .*'width'.*Correct"):
            build_network(Net(name=f"{__name__}:own_network", **options), IMAGES)


@pytest.mark.parametrize("size", [(4, 4), (12, 20), (30, 9)])
def test_a_lenet_takes_images_that_are_not_square(size):
    net = build_network(Net(name="lenet", width=2), Task("categorical", 7, (3, *size)))
    assert net(torch.zeros(2, 3, *size)).shape == (2, 7)


def test_networks_of_ones_own():
    assert build_network(Net(name=f"{__name__}:own_network", width=5), IMAGES)[2].out_features == 7
    with pytest.raises(ValueError, match=r"net\.name.*no_network.*str"):
        build_network(Net(name=f"{__name__}:no_network"), IMAGES)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_weights_to_start_from(suffix, tmp_path):
    net = build_network(Net(name="mlp", hidden=[4]), IMAGES)
    path = tmp_path / f"weights{suffix}"
    save_file(net.state_dict(), path) if suffix == ".safetensors" else torch.save(net.state_dict(), path)
    again = build_network(Net(name="mlp", hidden=[4], weights=path), IMAGES)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))
    with pytest.raises(ValueError, match=r"weights.*do not fit"):
        build_network(Net(name="mlp", hidden=[5], weights=path), IMAGES)
    with pytest.raises(FileNotFoundError, match=r"net\.weights"):
        build_network(Net(name="mlp", weights=tmp_path / "none"), IMAGES)


def test_weights_among_the_data_are_named_alike_on_every_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("SLIMBAYES_DATA", str(tmp_path))
    net = Net(name="mlp", hidden=[4], weights="pretrained:digits")
    assert net.model_dump(mode="json")["weights"] == "pretrained:digits"
    with pytest.raises(FileNotFoundError, match=r"pretrained.digits\.safetensors"):
        build_network(net, IMAGES)
    (tmp_path / "pretrained").mkdir()
    stored = build_network(Net(name="mlp", hidden=[4]), IMAGES).state_dict()
    save_file(stored, tmp_path / "pretrained" / "digits.safetensors")
    found = build_network(net, IMAGES).state_dict()
    assert all(torch.equal(found[name], stored[name]) for name in stored)


@pytest.mark.parametrize("name", trained_methods())
def test_methods(name):
    model = build_model(Method(name=name), lambda: nn.Linear(3, 2))
    assert model(torch.zeros(4, 3)).shape == (model.members, 4, 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"name": "rank_1"}, ["method.name", "'rank1'"]), ({"name": "rank1", "member": 3}, ["'member'", "'members'"])],
)
def test_wrong_methods_are_named(options, words):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        build_model(Method(**options), lambda: nn.Linear(3, 2))
    for word in words:
        assert word in str(error.value)


def test_annealing():
    assert annealing(Annealing(name="none"), 100) == 1.0
    linear = annealing(Annealing(fraction=0.5), 100)
    assert [linear(t) for t in (0, 24, 49, 99)] == [0.02, 0.5, 1.0, 1.0]
    never = annealing(Annealing(fraction=4), 100)
    assert never(99) == 0.25
    steps = annealing(Annealing(name="stepwise", slope=0.01, every=10), 100)
    assert [steps(t) for t in (9, 10, 55)] == pytest.approx([0.0, 0.1, 0.5])


def test_the_objective_is_the_tasks_unless_told_otherwise():
    config = TrainConfig(data="digits", net="mlp", objective="mixture", member_kl="mean")
    model = sb.rank1(nn.Linear(3, 1), members=2)
    elbo = build_objective(config, model, Task("bernoulli", 1, (3,)), 60, 10)
    assert (elbo.likelihood.name, elbo.objective, elbo.member_kl, elbo.num_data) == ("bernoulli", "mixture", "mean", 60)
    config.likelihood = {"name": "gaussian", "noise": 0.5}
    assert build_objective(config, model, Task("bernoulli", 1, (3,)), 60, 10).likelihood.noise == 0.5
