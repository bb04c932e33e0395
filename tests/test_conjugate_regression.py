"""sb.mean_field and sb.k_tied where the best diagonal posterior and the evidence are known in closed form."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import slimbayes as sb

F64 = torch.float64
ESTIMATORS = ("reparameterization", "local", "flipout")

DATA, INPUTS, TARGETS = 40, 4, 2
NOISE, PRIOR = 0.5, 0.6


@pytest.fixture
def regression():
    """A correlated design whose columns have different lengths."""
    mixing = torch.eye(INPUTS, dtype=F64) + 0.2 * torch.randn(INPUTS, INPUTS, dtype=F64)
    x = torch.randn(DATA, INPUTS, dtype=F64) @ mixing * torch.tensor([0.5, 1.0, 1.5, 2.0], dtype=F64)
    y = x @ torch.randn(INPUTS, TARGETS, dtype=F64) + 0.3 + NOISE * torch.randn(DATA, TARGETS, dtype=F64)
    return x, y


def optimum(x, y):
    """Return the exact posterior mean, and the best diagonal: variances of each weight with all others known."""
    design = torch.cat([x, torch.ones(len(x), 1, dtype=F64)], 1)
    precision = design.T @ design / NOISE**2 + torch.eye(INPUTS + 1, dtype=F64) / PRIOR**2
    mean = torch.linalg.solve(precision, design.T @ y / NOISE**2).T
    sigma = precision.diagonal().rsqrt().expand(TARGETS, -1)
    return mean[:, :-1], mean[:, -1], sigma[:, :-1], sigma[:, -1]


def assert_optimal(model, x, y, error):
    """Means are off by that part of a standard deviation at most, and so are standard deviations."""
    weight, bias, weight_std, bias_std = optimum(x, y)
    layer = model.net
    for found, expected, std in (
        (layer.weight, weight, weight_std),
        (layer.bias, bias, bias_std),
        (layer.weight_posterior.scale, weight_std, weight_std),
        (layer.bias_posterior.scale, bias_std, bias_std),
    ):
        assert ((found.detach() - expected) / std).abs().max().item() < error


def sigma_points(model):
    """Draws mean ± sqrt(d) sigma_j e_j, which have the posterior's mean and covariance: expected squares are exact."""
    parts = list(model.stochastic())
    size = sum(part.mean.numel() for part in parts)
    unit = math.sqrt(size) * torch.cat([torch.eye(size), -torch.eye(size)]).double()
    pieces = unit.split([part.mean.numel() for part in parts], 1)
    return {
        part.name: part.mean + part.scale * piece.view(-1, *part.mean.shape)
        for part, piece in zip(parts, pieces, strict=True)
    }


METHODS = {
    "mean-field": lambda net, **options: sb.mean_field(net, PRIOR, **options),
    # The best variances are the same for all outputs, so that one term is enough.
    "1-tied": lambda net, **options: sb.k_tied(net, 1, PRIOR, **options),
    "2-tied": lambda net, **options: sb.k_tied(net, 2, PRIOR, **options),
}


@pytest.mark.parametrize("convert", METHODS.values(), ids=METHODS)
def test_the_optimum_is_the_best_diagonal_posterior(regression, convert):
    x, y = regression
    model = convert(nn.Linear(INPUTS, TARGETS, dtype=F64))
    elbo = sb.ELBO(model, num_data=DATA, likelihood=sb.Gaussian(noise=NOISE))
    optimiser = torch.optim.LBFGS(
        model.net.parameters(), max_iter=500, line_search_fn="strong_wolfe", tolerance_grad=1e-12, tolerance_change=0
    )

    def closure():
        optimiser.zero_grad()
        loss = elbo(model(x, draw=sigma_points(model)), y)
        loss.backward()
        return loss

    optimiser.step(closure)
    assert_optimal(model, x, y, 1e-5)


@pytest.mark.parametrize(
    ("method", "estimator"), [("mean-field", "local"), ("mean-field", "flipout"), ("1-tied", "local")]
)
def test_noisy_steps_on_minibatches_find_it_too(regression, method, estimator):
    x, y = regression
    model = METHODS[method](nn.Linear(INPUTS, TARGETS, dtype=F64), estimator=estimator, init_std=0.1)
    elbo = sb.ELBO(model, num_data=DATA, likelihood=sb.Gaussian(noise=NOISE))
    epochs = 100
    optimiser = torch.optim.Adam(model.param_groups(lr=0.1))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        for rows in torch.randperm(DATA).split(DATA // 4):
            optimiser.zero_grad()
            elbo(model(x[rows], samples=64), y[rows]).backward()
            optimiser.step()
        schedule.step()
    assert_optimal(model, x, y, 0.05)


def test_the_bound_is_the_evidence_where_the_posterior_is_diagonal():
    x = torch.linalg.qr(torch.randn(DATA, INPUTS, dtype=F64)).Q * torch.tensor([1.0, 3.0, 5.0, 9.0], dtype=F64)
    y = x @ torch.randn(INPUTS, 1, dtype=F64) + NOISE * torch.randn(DATA, 1, dtype=F64)
    model = sb.mean_field(nn.Linear(INPUTS, 1, bias=False, dtype=F64), PRIOR)
    precision = x.square().sum(0) / NOISE**2 + PRIOR**-2
    with torch.no_grad():
        model.net.weight.copy_((x.T @ y / NOISE**2).T / precision)
        model.net.weight_posterior.spread.log_scale.copy_(-0.5 * precision.log())
    terms = sb.ELBO(model, DATA, sb.Gaussian(noise=NOISE)).terms(model(x, draw=sigma_points(model)), y)
    covariance = NOISE**2 * np.eye(DATA) + PRIOR**2 * (x @ x.T).numpy()
    evidence = stats.multivariate_normal(np.zeros(DATA), covariance).logpdf(y[:, 0].numpy())
    assert DATA * terms.loss.item() == pytest.approx(-evidence, rel=1e-10)
