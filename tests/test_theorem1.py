"""Theorem 1 (appendix A): rank-1 perturbations make the score fluctuate as structured full-rank ones do.

Eq. 4 of the paper has Σ_{j,k}, which is a typing error: with W_{ij} Σ_{jk} W_{kl}, k would index rows of W and
columns of it at once, and the right-hand side would change if (i, j) and (k, l) changed places. It must read

    E[(W - W*)_{ij} (W - W*)_{kl}] = W*_{ij} Σ_{jl} W*_{kl},

the covariance of W* diag(s - 1), which is how it is taken here.
"""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, hessian

import slimbayes as sb

WIDTH, DEPTH, DATA = 5, 3, 6


class Score(nn.Module):
    """The paper's network: x^(h) = sqrt(c / M) tanh(W^(h) x^(h-1)), f = a^T x^(H)."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(DEPTH))
        self.a = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.hidden:
            x = math.sqrt(2 / WIDTH) * torch.tanh(layer(x))
        return x @ self.a


@pytest.fixture
def model():
    net = Score().double()
    for layer in net.hidden:
        nn.init.normal_(layer.weight)
    return sb.rank1(net, members=1, factors="input", init="ones", dropout_rate=1e-3)


@pytest.fixture
def x():
    return torch.randn(DATA, WIDTH, dtype=torch.float64)


def parameter_hessian(model, x, name):
    """The Hessian of sum_n f(x_n) in one parameter, at the factors' locations."""

    def score(value):
        return functional_call(model, {name: value}, (x,), {"samples": 0}).sum()

    return hessian(score)(model.get_parameter(name).detach())


def full_rank_fluctuation(model, x, covariances):
    """The left-hand side of Eq. 5, with the covariance of Eq. 4."""
    total = 0.0
    for h, covariance in enumerate(covariances):
        curvature = parameter_hessian(model, x, f"net.hidden.{h}.weight")
        weight = model.net.hidden[h].weight.detach()
        total += torch.einsum("ijkl,ij,jl,kl->", curvature, weight, covariance, weight).item()
    return total


def rank_1_curvatures(model, x):
    """The Hessians in each s^(h), read off the layers' own factors."""
    return [parameter_hessian(model, x, f"net.hidden.{h}.input_factor.loc")[0, :, 0, :] for h in range(DEPTH)]


def test_expected_fluctuations_agree_for_any_covariance(model, x):
    roots = torch.randn(DEPTH, WIDTH, WIDTH, dtype=torch.float64)
    covariances = roots @ roots.mT
    rank_1 = sum((curvature * covariances[h]).sum().item() for h, curvature in enumerate(rank_1_curvatures(model, x)))
    full_rank = full_rank_fluctuation(model, x, covariances)
    assert abs(full_rank) > 0.1  # else the comparison would be empty
    assert rank_1 == pytest.approx(full_rank, rel=1e-10)


def posterior_covariances(model):
    return [torch.diag(layer.input_factor.scale[0].detach().square()) for layer in model.net.hidden]


def test_draws_of_the_factors_have_the_full_rank_fluctuation(model, x):
    draws = model.draw(samples=20_000)
    quadratic = torch.zeros(20_000, dtype=torch.float64)
    for layer, curvature in zip(model.net.hidden, rank_1_curvatures(model, x), strict=True):
        change = draws[layer.input_factor.name].detach() - 1
        quadratic += torch.einsum("nj,jl,nl->n", change, curvature, change)
    error = quadratic.std().item() / math.sqrt(len(quadratic))
    expected = full_rank_fluctuation(model, x, posterior_covariances(model))
    assert quadratic.mean().item() == pytest.approx(expected, abs=4 * error)
    assert abs(expected) > 20 * error


def test_the_models_mean_output_shifts_by_half_the_full_rank_fluctuation(model, x):
    with torch.no_grad():
        draw = model.draw(samples=20_000)
        mirrored = {name: 2 - value for name, value in draw.items()}  # cancels the terms of odd order
        scores = (model(x, draw=draw) + model(x, draw=mirrored)).sum(1) / 2
        shift = scores - model(x, samples=0).sum()
    error = shift.std().item() / math.sqrt(len(shift))
    expected = full_rank_fluctuation(model, x, posterior_covariances(model)) / 2
    # Terms of fourth order are smaller by the squared scale, 1e-3.
    assert shift.mean().item() == pytest.approx(expected, abs=4 * error + 0.01 * abs(expected))
    assert abs(expected) > 20 * error
