"""Gradients in float32 against float64, where digits are easily lost: small inputs beside large biases."""

import copy

import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes.layers import base

NETWORKS = {
    "dense": (lambda: nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 5)), (32,)),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(16, 5)),
        (3, 6, 6),
    ),
}
METHODS = {
    "rank1": lambda net: sb.rank1(net, members=4, dropout_rate=0.1),
    "batch_ensemble": lambda net: sb.batch_ensemble(net, members=4),
}


def gradients(model, x, y, draw):
    model.zero_grad()
    elbo = sb.ELBO(model, num_data=1000)
    elbo(model(x, draw=draw), y).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])
@pytest.mark.parametrize(("scale", "bias"), [(1.0, 1.0), (1e-4, 1.0), (1e-5, 5.0)])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_gradient_has_its_digits(network, method, scale, bias, fast, monkeypatch):
    build, shape = NETWORKS[network]
    model = METHODS[method](build())
    x, y = scale * torch.randn(64, *shape), torch.randint(5, (64,))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(bias * torch.randn_like(parameter).sign())
    exact = copy.deepcopy(model).double()
    draw = {name: value.detach() for name, value in model.draw().items()}
    if not fast:
        monkeypatch.setattr(base, "_fast", None)
    found = gradients(model, x, y, draw)
    expected = gradients(exact, x.double(), y, {name: value.double() for name, value in draw.items()})
    assert found.keys() == expected.keys()
    for name, truth in expected.items():
        error = (found[name].double() - truth).norm() / truth.norm().clamp_min(1e-30)
        assert error < 1e-5, name
