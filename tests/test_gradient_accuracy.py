"""Gradients in float32 against float64, where digits are easily lost: small inputs beside large biases.

Both types see the same noise, through which gradients reach locations and scales, factors, weights and biases.
"""

import copy

import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes.families import Cauchy, Normal, StudentT
from slimbayes.layers import base

try:
    from slimbayes._fast import row_noise
except ImportError:
    row_noise = None

ROWS, CLASSES = 64, 5


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.rnn, self.head = kind(3, 6, batch_first=True), nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.attention(x, x, x)[0].mean(1).relu())


def norms():
    normed = nn.BatchNorm1d(8), nn.LayerNorm(8), nn.GroupNorm(2, 8)
    return nn.Sequential(*normed, nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, CLASSES))


#: A network, and the shape of an example.
NETWORKS = {
    "dense": (lambda: nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, CLASSES)), (32,)),
    "positions": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3), nn.Flatten(), nn.Linear(12, CLASSES)),
        (4, 6),
    ),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(16, CLASSES)),
        (3, 6, 6),
    ),
    "transposed": (
        lambda: nn.Sequential(nn.ConvTranspose1d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(28, CLASSES)),
        (3, 5),
    ),
    "lstm": (lambda: Recurrent(nn.LSTM), (4, 3)),
    "gru": (lambda: Recurrent(nn.GRU), (4, 3)),
    "rnn": (lambda: Recurrent(nn.RNN), (4, 3)),
    "attention": (Attention, (5, 8)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(11, 6), nn.Flatten(), nn.Linear(24, CLASSES)), None),
    "norms": (norms, (8,)),
}


def rank1(**options):
    def make(net):
        return sb.rank1(net, members=4, member_norm=True, embedding="mean_field", **options)

    return make


def gaussian(method, **options):
    return lambda net: method(net, init_std=0.05, **options)


METHODS = {
    "rank1": rank1(dropout_rate=0.1),
    "rank1_shared": rank1(dropout_rate=0.1, noise="shared"),
    "rank1_independent": rank1(dropout_rate=0.1, noise="independent"),
    # With wider factors their tails would saturate the softmax, and lose digits in any implementation.
    "rank1_cauchy": rank1(family="cauchy", dropout_rate=1e-6),
    "rank1_student_t": rank1(family="student_t", dropout_rate=1e-4),
    "rank1_log_normal": rank1(family="log_normal", dropout_rate=1e-2),
    "rank1_of_rank_2": rank1(rank=2, dropout_rate=0.1),
    "batch_ensemble": lambda net: sb.batch_ensemble(net, members=4, member_norm=True),
    **{
        f"{name}_{estimator}": gaussian(method, estimator=estimator)
        for name, method in (("mean_field", sb.mean_field), ("k_tied", sb.k_tied))
        for estimator in ("reparameterization", "local", "flipout")
    },
}


@pytest.fixture(params=["fast", "plain"])
def _fast_or_plain(request, monkeypatch):
    """Noise is drawn in float32 and then converted, so that a float64 copy sees the same; even few rows share it."""
    for family in (Normal, Cauchy, StudentT):
        monkeypatch.setattr(family, "noise", in_float32(family.noise))
    if request.param == "plain":
        monkeypatch.setattr(base, "_fast", None)
    elif row_noise is not None:
        monkeypatch.setattr(row_noise, "LEAST_TO_SHARE", 1)


def in_float32(noise):
    return lambda family, shape, like, generator=None: noise(family, shape, like.float(), generator).to(like.dtype)


def gradients(model, x, y):
    model.zero_grad()
    torch.manual_seed(1)
    elbo = sb.ELBO(model, num_data=1000)
    elbo(model(x), y).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def check(network, method, scale, bias):
    build, shape = NETWORKS[network]
    net = build()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            last = name.rpartition(".")[2]
            if shape is None and last == "weight" and parameter.shape[0] == 11:
                parameter.mul_(scale)
            # The softmax of scores that are nearly equal cancels whatever keys and values share, in plain torch too.
            if "bias" in last and last != "in_proj_bias":
                parameter.copy_(bias * torch.randn_like(parameter).sign())
    model = METHODS[method](net)
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # the members' biases differ
            if name.endswith(".bias") and parameter.dim() == 2:
                parameter.copy_(bias * torch.randn_like(parameter).sign())
    x = torch.randint(11, (ROWS, 4)) if shape is None else scale * torch.randn(ROWS, *shape)
    y = torch.randint(CLASSES, (ROWS,))
    exact = copy.deepcopy(model).double()
    found = gradients(model, x, y)
    expected = gradients(exact, x.double() if x.is_floating_point() else x, y)
    # Where the network's output depends on it, every parameter has a gradient.
    assert found.keys() == expected.keys() == dict(model.named_parameters()).keys()
    for name, truth in expected.items():
        error = (found[name].double() - truth).norm() / truth.norm()
        assert error < 1e-5, name


@pytest.mark.usefixtures("_fast_or_plain")
@pytest.mark.parametrize("scale", [1.0, 1e-4])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_gradient_has_its_digits(network, method, scale):
    check(network, method, scale, bias=1.0)


@pytest.mark.usefixtures("_fast_or_plain")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("network", ["dense", "convolutions"])
def test_tiny_inputs_beside_large_biases(network, method):
    check(network, method, 1e-5, bias=5.0)
