"""Bayesian linear regression in the factors, whose posterior and evidence are known in closed form.

With a frozen weight w and factors on the input alone, y = sum_j w_j s_j x_j + noise is linear in s. Under the prior
N(m, t^2) and with orthogonal columns of F = x diag(w), the posterior is diagonal:

    precision_j = 1 / t^2 + |F_j|^2 / noise^2,    mean_j = (m / t^2 + F_j . y / noise^2) / precision_j.

The objective averages the likelihood over K members. With their KLs averaged too, each member meets the exact
posterior. With the KLs summed, N mean_k NLL_k + sum_k KL_k = sum_k (N NLL_k / K + KL_k): each member's likelihood is
K times weaker, its precision 1 / t^2 + |F_j|^2 / (K noise^2).
"""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import slimbayes as sb
from slimbayes.families import SCALE_EPSILON, inverse_softplus

DATA, INPUTS = 32, 4
NOISE, PRIOR_MEAN, PRIOR_STD = 0.5, 0.8, 0.6
WEIGHT = torch.tensor([[1.0, -0.5, 2.0, 0.8]], dtype=torch.float64)
TRUTH = torch.tensor([1.4, 0.6, 0.9, 1.1], dtype=torch.float64)


@pytest.fixture
def regression():
    """An orthogonal design and its targets."""
    x = torch.linalg.qr(torch.randn(DATA, INPUTS, dtype=torch.float64)).Q * math.sqrt(DATA)
    y = x @ (WEIGHT[0] * TRUTH) + NOISE * torch.randn(DATA, dtype=torch.float64)
    return x, y


def convert(members):
    net = nn.Linear(INPUTS, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        net.weight.copy_(WEIGHT)
    return sb.rank1(
        net,
        members=members,
        factors="input",
        freeze_base=True,
        init="ones",
        dropout_rate=0.01,
        prior_mean=PRIOR_MEAN,
        prior_std=PRIOR_STD,
    )


def exact_posterior(x, y, strength=1.0):
    """Mean and standard deviation, with the likelihood raised to the power ``strength``."""
    features = x * WEIGHT
    precision = PRIOR_STD**-2 + strength * features.square().sum(0) / NOISE**2
    mean = (PRIOR_MEAN * PRIOR_STD**-2 + strength * features.T @ y / NOISE**2) / precision
    return mean, precision.rsqrt()


def log_evidence(x, y):
    features = (x * WEIGHT).numpy()
    covariance = NOISE**2 * np.eye(DATA) + PRIOR_STD**2 * features @ features.T
    return stats.multivariate_normal(features @ np.full(INPUTS, PRIOR_MEAN), covariance).logpdf(y.numpy())


def sigma_points(model):
    """Draws loc ± sqrt(d) scale_j e_j, which have the posterior's mean and covariance: expected squares are exact."""
    factor = model.net.input_factor
    unit = math.sqrt(INPUTS) * torch.cat([torch.eye(INPUTS), -torch.eye(INPUTS)]).double()
    return {factor.name: (factor.loc.unsqueeze(1) + factor.scale.unsqueeze(1) * unit).flatten(0, 1)}


def assert_posterior(model, mean, std, error):
    factor = model.net.input_factor
    torch.testing.assert_close(factor.loc.detach(), mean.expand_as(factor.loc), rtol=error, atol=0)
    torch.testing.assert_close(factor.scale.detach(), std.expand_as(factor.loc), rtol=error, atol=0)


CASES = [(1, "sum", 1.0), (3, "sum", 1 / 3), (3, "mean", 1.0)]


@pytest.mark.parametrize(("members", "member_kl", "strength"), CASES)
def test_the_optimum_is_the_exact_posterior(regression, members, member_kl, strength):
    x, y = regression
    model = convert(members)
    elbo = sb.ELBO(model, num_data=DATA, likelihood=sb.Gaussian(noise=NOISE), member_kl=member_kl)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def closure():
        model.zero_grad()
        loss = elbo(model(x, draw=sigma_points(model)), y)
        loss.backward()
        return loss

    # The line search gives up where the loss no longer changes in its last digit; a new start goes on from there.
    for _ in range(6):
        options = {"line_search_fn": "strong_wolfe", "tolerance_grad": 1e-12, "tolerance_change": 0}
        torch.optim.LBFGS(trained, max_iter=200, **options).step(closure)
    assert_posterior(model, *exact_posterior(x, y, strength), error=1e-5)
    assert torch.equal(model.net.weight, WEIGHT)


@pytest.mark.parametrize(("members", "member_kl", "strength"), CASES)
def test_noisy_steps_on_minibatches_find_the_exact_posterior(regression, members, member_kl, strength):
    x, y = regression
    model = convert(members)
    elbo = sb.ELBO(model, num_data=DATA, likelihood=sb.Gaussian(noise=NOISE), member_kl=member_kl)
    batch, epochs = DATA // 4, 100
    optimiser = torch.optim.Adam(model.param_groups(lr=0.05))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        for rows in torch.randperm(DATA).split(batch):
            optimiser.zero_grad()
            elbo(model(x[rows], samples=512), y[rows]).backward()
            optimiser.step()
        schedule.step()
    assert_posterior(model, *exact_posterior(x, y, strength), error=0.02)


@pytest.fixture
def exact(regression):
    """A model at the exact posterior."""
    x, y = regression
    model = convert(members=1)
    mean, std = exact_posterior(x, y)
    with torch.no_grad():
        model.net.input_factor.loc.copy_(mean)
        rho = [inverse_softplus(value - SCALE_EPSILON) for value in std.tolist()]
        model.net.input_factor.rho.copy_(torch.tensor(rho, dtype=torch.float64))
    return model, sb.ELBO(model, num_data=DATA, likelihood=sb.Gaussian(noise=NOISE))


def test_the_bound_is_tight_at_the_exact_posterior(regression, exact):
    x, y = regression
    model, elbo = exact
    terms = elbo.terms(model(x, draw=sigma_points(model)), y)
    assert DATA * terms.loss.item() == pytest.approx(-log_evidence(x, y), rel=1e-10)
    assert DATA * terms.nll.item() + terms.kl.item() == pytest.approx(-log_evidence(x, y), rel=1e-10)
    with torch.no_grad():
        model.net.input_factor.loc += 0.1
        assert DATA * elbo(model(x, draw=sigma_points(model)), y).item() > -log_evidence(x, y) + 0.1


@pytest.mark.parametrize("noise", ["example", "shared"])
def test_the_bound_estimated_from_draws(regression, exact, noise):
    x, y = regression
    model, elbo = exact
    samples = 10_000
    with torch.no_grad():
        outputs = model(x, samples=samples, noise=noise)
        estimate = DATA * elbo.terms(outputs, y).loss.item()
        log_likelihoods = -(outputs.squeeze(-1) - y).square() / (2 * NOISE**2)
    # Examples that share a draw vary together; with draws of their own their variances add up.
    spread = log_likelihoods.sum(1).std() if noise == "shared" else log_likelihoods.var(0).sum().sqrt()
    assert estimate == pytest.approx(-log_evidence(x, y), abs=4 * spread.item() / math.sqrt(samples))
