"""sb.mean_field: conversion, KL of a whole network, training, storage, and defects of peers that are not ours."""

import copy
import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.distributions import Normal, kl_divergence

import slimbayes as sb
from cases import NestedResNet, Tied

F64 = torch.float64
ESTIMATORS = ("reparameterization", "local", "flipout")
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)


def closed_form_kl(model, prior_std):
    """Sum the textbook KL over every weight of every posterior in NumPy's double precision."""
    total = 0.0
    for part in model.stochastic():
        mean, sigma = (np.asarray(x.detach().double()) for x in (part.mean, part.spread.log_scale.exp()))
        total += (np.log(prior_std / sigma) + (sigma**2 + mean**2) / (2 * prior_std**2) - 0.5).sum()
    return total


def mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


# ---------------------------------------------------------------------- KL of a network


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("count", [1, 3])
def test_kl_is_the_sum_over_all_weights_of_all_layers(count, bias):
    net = nn.Sequential(*(nn.Linear(100, 100, bias=bias) for _ in range(count)))
    model = sb.mean_field(net, prior_std=0.3)
    assert model.kl().item() == pytest.approx(closed_form_kl(model, 0.3), rel=1e-5)


def test_kl_of_identical_layers_is_that_many_times_that_of_one():
    layer = nn.Linear(100, 100)
    one = sb.mean_field(layer, init_jitter=0.0).kl().item()
    four = sb.mean_field(nn.Sequential(*(copy.deepcopy(layer) for _ in range(4))), init_jitter=0.0).kl().item()
    assert four == pytest.approx(4 * one, rel=1e-6)
    assert one > 10_000  # more than a nat for each of the weights: a sum, and no mean


@each_estimator
def test_kl_does_not_change_with_forward_passes(estimator):
    model = sb.mean_field(mlp(), estimator=estimator)
    before = model.kl()
    for samples in (0, 1, 5):
        model(torch.randn(6, 4), samples=samples)
        model.predict(torch.randn(6, 4), samples=max(samples, 1))
    assert torch.equal(model.kl(), before)
    assert torch.equal(model.kl("mean"), before)  # one member


def test_kl_counts_tied_and_shared_weights_once():
    model = sb.mean_field(Tied(), prior_std=0.3)
    table, shared = model.net.embed.weight_posterior, model.net.shared
    parts = [(table, table.mean), (shared.weight_posterior, shared.weight), (shared.bias_posterior, shared.bias)]
    expected = sum(kl_divergence(Normal(mean, part.scale), Normal(0.0, 0.3)).sum() for part, mean in parts)
    torch.testing.assert_close(model.kl(), expected)


def test_point_estimated_biases_have_no_kl():
    net = nn.Linear(6, 5)
    both, weights = sb.mean_field(net), sb.mean_field(net, bayesian_bias=False)
    weights.net.weight_posterior.load_state_dict(both.net.weight_posterior.state_dict())
    bias = both.net.bias_posterior
    expected = kl_divergence(Normal(bias.mean, bias.scale), Normal(0.0, 0.3)).sum()
    torch.testing.assert_close(both.kl() - weights.kl(), expected, rtol=1e-4, atol=1e-4)
    assert [part.name for part in weights.stochastic()] == ["weight_posterior"]


# ---------------------------------------------------------------------- conversion


def test_every_layer_of_a_nested_network_is_converted():
    model = sb.mean_field(NestedResNet())
    kinds = {name: type(module).__name__ for name, module in model.net.named_modules()}
    assert kinds["stem"] == kinds["stages.0.1.body.3"] == "GaussianConv2d"
    assert kinds["heads.classes"] == "GaussianLinear"
    assert kinds["stages.0.0.body.1"] == "BatchNorm2d"
    assert model.members == 1


#: A layer, and a batch of four for it; recurrences have the batch on axis 1.
LAYERS = {
    "Linear": (lambda: nn.Linear(4, 3), (4, 4)),
    "Conv1d": (lambda: nn.Conv1d(2, 3, 2), (4, 2, 5)),
    "Conv2d": (lambda: nn.Conv2d(2, 3, (1, 3)), (4, 2, 5, 5)),
    "Conv3d": (lambda: nn.Conv3d(2, 3, 2), (4, 2, 3, 3, 3)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(2, 3, 2), (4, 2, 5)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(2, 3, 2), (4, 2, 5, 5)),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(2, 3, 2), (4, 2, 3, 3, 3)),
    "LSTM": (lambda: nn.LSTM(2, 3, num_layers=2, bidirectional=True), (5, 4, 2)),
    "GRU": (lambda: nn.GRU(2, 3), (5, 4, 2)),
    "RNN": (lambda: nn.RNN(2, 3, nonlinearity="relu"), (5, 4, 2)),
    "Embedding": (lambda: nn.Embedding(5, 3), (4, 6)),
}
each_layer = pytest.mark.parametrize("make", [make for make, _ in LAYERS.values()], ids=LAYERS)


@each_layer
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_a_layer_alone_is_converted_with_twice_its_parameters(make, dtype):
    """Peers return None for a root layer, turn double into float, keep full-size buffers, and store things twice."""
    net = make().to(dtype)
    model = sb.mean_field(net)
    assert model.summary().converted == [""]
    assert sb.count_parameters(model) == 2 * sb.count_parameters(net)
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert not list(model.buffers())
    state = model.state_dict()
    assert len({value.data_ptr() for value in state.values()}) == len(state)
    assert sum(value.numel() for value in state.values()) == 2 * sb.count_parameters(net)


@each_layer
def test_weights_are_kept_bit_by_bit(make):
    net = make()
    model = sb.mean_field(net)
    for name, parameter in net.named_parameters():
        assert torch.equal(model.net.get_parameter(name), parameter)
        assert torch.equal(model.member(0).get_parameter(name), parameter)


def test_include_and_exclude():
    net = nn.ModuleDict({"body": mlp(), "head": nn.Linear(3, 2)})
    assert sb.mean_field(net, include="head").summary().converted == ["head"]
    assert sb.mean_field(net, exclude="head").summary().converted == ["body.0", "body.2"]
    assert sb.mean_field(net, include=["body.0", "head"], exclude="head").summary().converted == ["body.0"]
    left = sb.mean_field(net, include="head").net["body"][0]
    assert type(left) is nn.Linear


def test_a_two_layer_lstm_keeps_its_layers_and_its_layout():
    net = nn.LSTM(4, 6, num_layers=2, batch_first=True)
    layer = sb.mean_field(net).net
    assert (layer.num_layers, layer.batch_first) == (2, True)
    assert list(layer.posteriors) == [name for name, _ in net.named_parameters()]


@each_estimator
def test_a_transformer_layer_converts_and_its_fused_path_is_closed(estimator):
    net = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
    model = sb.mean_field(net, estimator=estimator, init_std=0.3).eval()
    x = torch.randn(3, 5, 8)
    with torch.no_grad():
        torch.testing.assert_close(model(x, samples=0)[0], net(x), rtol=1e-4, atol=1e-5)
        assert not torch.allclose(model(x)[0], net(x), atol=0.05)


@each_estimator
@pytest.mark.parametrize(("make", "shape"), LAYERS.values(), ids=LAYERS)
def test_without_deviations_it_is_the_network(make, shape, estimator):
    """A peer's Flipout adds a whole random weight instead of a perturbation, and stays noisy as sigma vanishes."""
    net = make().double()
    x = torch.randint(5, shape) if isinstance(net, nn.Embedding) else torch.randn(shape, dtype=F64)
    model = sb.mean_field(net, estimator=estimator, init_std=1e-12, batch_dim=int(isinstance(net, nn.RNNBase)))
    outputs, expected = model(x, samples=2), net(x)
    if isinstance(net, nn.RNNBase):
        outputs, expected = outputs[0], expected[0]
    # Local noise on outputs has a floor of 1e-8.
    torch.testing.assert_close(
        outputs, expected.expand_as(outputs), rtol=0, atol=1e-7 if estimator == "local" else 1e-10
    )


def test_no_bias_means_no_bias():
    model = sb.mean_field(nn.Sequential(nn.Linear(8, 3, bias=False), nn.Conv1d(3, 2, 1, bias=False)))
    assert model.net[0].bias is None
    assert model.net[0].bias_posterior is None
    assert not [name for name, _ in model.named_parameters() if "bias" in name]


def test_prior_std_is_a_standard_deviation_and_not_a_variance():
    net = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(net.weight)
    model = sb.mean_field(net, prior_std=0.25, init_std=0.25, init_jitter=0.0)
    assert model.kl().item() == pytest.approx(0, abs=1e-6)


@each_estimator
def test_deepcopy_after_a_forward_pass(estimator):
    model = sb.mean_field(mlp(), estimator=estimator)
    model(torch.randn(5, 4)).sum().backward()
    twin = copy.deepcopy(model)
    owners = {id(module) for module in twin.modules()}
    assert all(id(part.owner[0]) in owners for part in twin.stochastic())
    with torch.no_grad():
        twin.net[0].weight.add_(1)
    assert twin.kl() > model.kl()


def test_noise_by_default():
    """A draw is one function where its rows share a weight anyway; else each row has its own noise."""
    defaults = {
        ("reparameterization", "draw"): "shared",
        ("reparameterization", "batch"): "example",
        ("flipout", "draw"): "example",
        ("flipout", "batch"): "example",
        ("local", "draw"): "example",
    }
    for (estimator, sample_per), noise in defaults.items():
        assert sb.mean_field(mlp(), estimator=estimator, sample_per=sample_per).options["noise"] == noise
    assert sb.mean_field(mlp(), noise="example").options["noise"] == "example"


# ---------------------------------------------------------------------- tied weights and shared modules


@pytest.mark.parametrize("noise", ["example", "shared"])
@each_estimator
def test_tied_layers_share_one_posterior(estimator, noise):
    class Twins(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.second.weight, self.second.bias = self.first.weight, self.first.bias

        def forward(self, x):
            return self.first(x) - self.second(x)

    model = sb.mean_field(Twins(), estimator=estimator, init_std=0.5, noise=noise)
    assert model.net.first.weight_posterior is model.net.second.weight_posterior
    assert sorted(model.draw()) == ["first.bias_posterior", "first.weight_posterior"]
    assert sb.count_parameters(model) == 2 * (16 + 4)
    torch.testing.assert_close(model(torch.randn(5, 4), samples=3), torch.zeros(3, 5, 4))
    for sample in (None, 0):
        folded = model.member(0, sample=sample)
        assert folded.first.weight is folded.second.weight
        assert folded.first.bias is folded.second.bias


@pytest.mark.parametrize("estimator", ["reparameterization", "flipout"])
def test_a_module_in_two_places_keeps_its_draw(estimator):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared = nn.Sequential(nn.Linear(4, 4), nn.Unflatten(1, (2, 2)), nn.Conv1d(2, 2, 1))
            self.again = self.shared

        def forward(self, x):
            return self.shared(x) - self.again(x)

    model = sb.mean_field(Twice(), estimator=estimator, init_std=0.5, noise="example")
    assert model.net.shared is model.net.again
    torch.testing.assert_close(model(torch.randn(5, 4), samples=3), torch.zeros(3, 5, 2, 2))
    folded = model.member(0, sample=0)
    assert folded.shared is folded.again


# ---------------------------------------------------------------------- training


def test_param_groups():
    model = sb.mean_field(nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3)), bayesian_bias=False)
    base, means, deviations = model.param_groups(lr=0.1, weight_decay=0.01, factor_lr=0.5)
    names = {id(p): name for name, p in model.named_parameters()}
    assert [names[id(p)] for p in base["params"]] == ["net.0.bias", "net.1.weight", "net.1.bias", "net.2.bias"]
    assert [names[id(p)] for p in means["params"]] == ["net.0.weight", "net.2.weight"]
    assert all("log_scale" in names[id(p)] for p in deviations["params"])
    assert [(g["lr"], g["weight_decay"]) for g in (base, means, deviations)] == [(0.1, 0.01), (0.1, 0.0), (0.5, 0.0)]
    everything = [p for group in (base, means, deviations) for p in group["params"]]
    assert {id(p) for p in everything} == {id(p) for p in model.parameters()}
    assert len(everything) == len(list(model.parameters()))


def test_freeze_base_trains_the_standard_deviations_alone(tmp_path):
    net = nn.Sequential(nn.Linear(40, 30), nn.BatchNorm1d(30), nn.Linear(30, 3))
    model = sb.mean_field(net, freeze_base=True, estimator="local")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    elbo = sb.ELBO(model, num_data=100)
    optimiser = torch.optim.Adam(model.param_groups(lr=0.1))
    assert len(optimiser.param_groups) == 1
    for _ in range(3):
        optimiser.zero_grad()
        elbo(model(torch.randn(20, 40)), torch.randint(3, (20,))).backward()
        optimiser.step()
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {name for name in before if "log_scale" in name}
    model.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert set(stored) == moved
    assert sum(value.numel() for value in stored.values()) == 30 * 40 + 30 + 3 * 30 + 3
    loaded = sb.load(tmp_path, net)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in loaded.state_dict().items())
    assert {n for n, p in loaded.named_parameters() if p.requires_grad} == moved
    with pytest.raises(ValueError, match="weights differ"):
        sb.load(tmp_path, nn.Sequential(nn.Linear(40, 30), nn.BatchNorm1d(30), nn.Linear(30, 3)))


@each_estimator
def test_an_upper_bound_holds_throughout_training(estimator):
    model = sb.mean_field(mlp(), estimator=estimator, max_std=0.05, prior_std=1.0)
    elbo = sb.ELBO(model, num_data=10)
    optimiser = torch.optim.Adam(model.param_groups(lr=0.1))
    for _ in range(60):
        optimiser.zero_grad()
        elbo(model(torch.randn(10, 4)), torch.randint(3, (10,))).backward()
        optimiser.step()
    largest = max(part.scale.max().item() for part in model.stochastic())
    assert largest == pytest.approx(0.05, rel=1e-6)  # the prior draws all deviations up to the bound
    drawn = {name: value.std(0) for name, value in model.draw(4000).items()}
    assert max(value.max().item() for value in drawn.values()) < 0.05 * (1 + 5 / math.sqrt(8000))


# ---------------------------------------------------------------------- storage


class Odd(nn.Module):
    """Names that are patterns to a shell, parts of one another, or our own attributes."""

    def __init__(self):
        super().__init__()
        names = ["a*", "a", "ab", "a[b]", "weight_posterior", "net", "log scale"]
        self.parts = nn.ModuleDict({name: nn.Linear(3, 3) for name in names})
        self.a = nn.Linear(3, 3)

    def forward(self, x):
        for part in self.parts.values():
            x = part(x).tanh()
        return self.a(x)


@each_estimator
def test_odd_names_are_saved_and_loaded(estimator, tmp_path):
    options = {
        "prior": "he",
        "max_std": np.float64(0.3),
        "init": 0.1,
        "bayesian_bias": False,
        "init_std": np.float32(0.05),
        "init_jitter": 0,
    }
    model = sb.mean_field(
        Odd(), estimator=estimator, exclude=lambda name, _: name in ("parts.a", "parts.net"), **options
    )
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["method"] == "mean_field"
    assert config["options"]["estimator"] == estimator
    loaded = sb.load(tmp_path, Odd())
    assert loaded.summary().converted == model.summary().converted
    assert loaded.options == model.options
    x = torch.randn(4, 3)
    outputs = [m(x, samples=2, generator=torch.Generator().manual_seed(1)) for m in (model, loaded)]
    assert torch.equal(*outputs)
    assert torch.equal(loaded.kl(), model.kl())


# ---------------------------------------------------------------------- one weight a row


class Twice(nn.Module):
    """Calls one layer twice, under one name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x) - self.layer(x)


class TwoPlaces(Twice):
    """The same under two names, which conversion can see."""

    def __init__(self) -> None:
        super().__init__()
        self.again = self.layer

    def forward(self, x):
        return self.layer(x) - self.again(x)


@pytest.mark.parametrize(("net", "estimator"), [(Twice, "flipout"), (TwoPlaces, "flipout"), (TwoPlaces, "local")])
def test_a_layer_called_twice_keeps_its_weights(net, estimator):
    model = sb.mean_field(net(), estimator=estimator, init_std=1.0)
    torch.testing.assert_close(model(torch.randn(5, 4), samples=3), torch.zeros(3, 5, 4))


@pytest.mark.parametrize("positions", [(), (3,)])
def test_noise_on_outputs_cannot_be_given_twice(positions):
    class Both(Twice):
        def forward(self, x):
            return self.layer(x) + self.layer(x.unsqueeze(1).expand(-1, *positions, -1) if positions else x).mean()

    model = sb.mean_field(Both(), estimator="local")
    with pytest.raises(RuntimeError, match="layer was called twice.*estimator='flipout'"):
        model(torch.randn(5, 4))
    model(torch.randn(5, 4), noise="shared")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"freeze_base": True, "init": "he"}, "`init`.*freeze_base.*'he'"),
        ({"noise": "shared", "sample_per": "batch", "estimator": "flipout"}, "`noise`.*sample_per.*'shared'"),
    ],
)
def test_options_that_contradict_each_other(options, words):
    with pytest.raises(ValueError, match=words):
        sb.mean_field(mlp(), **options)


def test_wrong_types():
    with pytest.raises(TypeError, match="`bayesian_bias`.*'no'"):
        sb.mean_field(mlp(), bayesian_bias="no")
    with pytest.raises(TypeError, match="`net`.*NoneType"):
        sb.k_tied(None, untied="x")


@pytest.mark.parametrize("init", ["he", 0.1])
@pytest.mark.parametrize("bayesian_bias", [True, False])
def test_new_means_come_with_biases_at_zero(init, bayesian_bias):
    net = nn.Sequential(nn.Linear(4, 8), nn.Conv1d(8, 8, 1), nn.LSTM(4, 3))
    model = sb.mean_field(net, init=init, bayesian_bias=bayesian_bias)
    biases = [p for name, p in model.member(0).named_parameters() if "bias" in name]
    assert len(biases) == 4
    assert not any(bias.any() for bias in biases)


# ---------------------------------------------------------------------- what layers share


class TiedAutoencoder(nn.Module):
    """A transposed convolution with the convolution's weight."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.code, self.decode = nn.Conv2d(3, channels, 3), nn.ConvTranspose2d(channels, 3, 3)
        self.decode.weight = self.code.weight

    def forward(self, x):
        return self.decode(self.code(x))


@pytest.mark.parametrize("estimator", ["flipout", "local"])
@pytest.mark.parametrize("channels", [3, 8])
def test_a_tied_autoencoder_answers_each_row_with_one_weight(estimator, channels):
    model = sb.mean_field(TiedAutoencoder(channels).double(), estimator=estimator, bayesian_bias=False, init_std=0.5)
    posterior, x, kept = model.net.code.weight_posterior, torch.randn(4, 3, 6, 6, dtype=F64), {}
    plain = model.member(0)
    model.net.register_forward_hook(lambda *_: kept.update(model.sampling.drawn))
    outputs = model(x)[0]
    for row in range(4):
        signs = kept[f"{posterior.name}/r"][row].view(-1, 1, 1, 1) * kept[f"{posterior.name}/s"][row].view(1, -1, 1, 1)
        plain.code.weight.data = (posterior.mean + kept[f"{posterior.name}/delta"][0] * signs).detach()
        plain.decode.weight = plain.code.weight
        torch.testing.assert_close(outputs[row], plain(x[row : row + 1])[0])


@each_estimator
def test_a_shared_bias_is_one_draw_a_row(estimator):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(3, 4)
            self.b.bias = self.a.bias

        def forward(self, x):
            return self.a(x) - self.b(x)

    model = sb.mean_field(Net(), estimator=estimator, init_std=0.5)
    torch.testing.assert_close(model(torch.zeros(6, 3), samples=2), torch.zeros(2, 6, 4))


def test_prediction_holds_few_draws_at_once_and_they_differ():
    model, x = sb.mean_field(mlp(), init_std=0.5), torch.randn(7, 4)
    sizes = []
    draw = model.draw
    model.draw = lambda samples, generator=None: sizes.append(samples) or draw(samples, generator)
    few = model.predict(x, samples=5, seed=1, max_memory=1000, likelihood="gaussian").draws
    assert max(sizes) < 5
    whole = model.predict(x, samples=5, seed=1, likelihood="gaussian").draws
    torch.testing.assert_close(few, whole)
    batched = sb.mean_field(mlp(), sample_per="batch", init_std=0.5).predict(x, samples=4, likelihood="gaussian")
    assert (batched.epistemic_std > 0).all()


def test_an_embedding_with_max_norm_is_left_with_the_reason():
    net = nn.Sequential(nn.Embedding(5, 3, max_norm=1.0), nn.Linear(3, 2))
    with pytest.warns(UserWarning, match="1 of 2 layers with weight matrices.*max_norm=1.0 rewrites its table"):
        summary = sb.mean_field(net).summary()
    assert summary.converted == ["1"]
    assert "max_norm=1.0" in str(summary)


def test_converters_are_registered_for_methods_that_exist():
    with pytest.raises(ValueError, match="`method`.*'mean_field'.*'k_tied'"):
        sb.register_converter(nn.Bilinear, lambda layer, settings: layer, method="k_tied")
