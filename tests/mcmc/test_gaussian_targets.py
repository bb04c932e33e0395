"""Samplers on targets whose posterior is known: Gaussians, and Bayesian linear regression by minibatches.

Chains are the rows of one parameter. Every tolerance is 4.5 Monte Carlo standard errors, with the effective sample
size of the very statistic: over the 170 or so numbers compared here the chance of a false alarm is about 1e-3.
"""

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_lyapunov

from slimbayes.mcmc import PSGLD, SGHMC, SGLD, Sampler, effective_sample_size

ERRORS = 4.5
MEAN_2 = torch.tensor([1.0, -2.0], dtype=torch.float64)
HESSIAN_2 = torch.tensor([[1.0, 0.6], [0.6, 0.8]], dtype=torch.float64)


def gaussian_target(dimensions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean and the Hessian of U / N: correlated, with eigenvalues between 0.3 and 1.5."""
    if dimensions == 2:
        return MEAN_2, HESSIAN_2
    turn, _ = torch.linalg.qr(torch.randn(dimensions, dimensions, dtype=torch.float64))
    return torch.randn(dimensions, dtype=torch.float64), turn * torch.linspace(0.3, 1.5, dimensions) @ turn.T


def run(sampler: Sampler, loss, burn_in: int, kept: int, every: int) -> torch.Tensor:
    """Return draws of the sampler's first parameter, (chains, kept, dimensions)."""
    (theta,) = sampler.param_groups[0]["params"]
    draws = []
    for step in range(burn_in + kept * every):
        sampler.zero_grad()
        loss(theta).backward()
        sampler.step()
        if step >= burn_in and (step - burn_in) % every == every - 1:
            draws.append(theta.detach().clone())
    return torch.stack(draws, 1)


def chains(count: int, dimensions: int) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.zeros(count, dimensions, dtype=torch.float64))


def quadratic(mean: torch.Tensor, hessian: torch.Tensor):
    return lambda theta: 0.5 * ((theta - mean) @ hessian * (theta - mean)).sum()


def assert_moments(draws: torch.Tensor, mean: torch.Tensor, covariance: torch.Tensor, bias: float = 0.0) -> None:
    """Compare mean and covariance; ``bias`` is a known relative error of the covariance, added to the tolerance."""
    off = draws - mean
    products = off[..., :, None] * off[..., None, :]
    for values, expected in ((off, torch.zeros_like(mean)), (products, covariance)):
        error = values.flatten(0, 1).std(0) / effective_sample_size(values, rank_normalised=False).sqrt()
        slack = bias * covariance.diagonal().max() if values is products else 0.0
        assert ((values.mean((0, 1)) - expected).abs() <= ERRORS * error + slack).all()


def samplers(theta, lr: float, **options) -> dict[str, Sampler]:
    return {
        "sgld": SGLD([theta], lr, **options),
        "sghmc": SGHMC([theta], lr, momentum_decay=0.3, **options),
        "sghmc-strong-friction": SGHMC([theta], lr, momentum_decay=0.9, **options),
    }


def discretised_covariance(name: str, lr: float, num_data: int, temperature: float, hessian: torch.Tensor):
    """Return the closed form of the docstrings."""
    friction = {"sgld": 1.0, "sghmc": 0.3, "sghmc-strong-friction": 0.9}[name]
    eye = torch.eye(len(hessian), dtype=hessian.dtype)
    return temperature / num_data * torch.linalg.inv(hessian @ (eye - lr / (2 * (2 - friction)) * hessian))


NAMES = ["sgld", "sghmc", "sghmc-strong-friction"]


@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.9, 1.0])
def test_the_closed_form_of_the_discretised_law_solves_its_lyapunov_equation(alpha):
    # (momentum, position) is a linear map of itself plus noise, whose stationary covariance SciPy solves for.
    lr, num_data, temperature, hessian = 0.4, 50, 0.7, HESSIAN_2.numpy()
    eye, h = np.eye(2), np.sqrt(lr / num_data)
    momentum = np.hstack([(1 - alpha) * eye, -np.sqrt(lr * num_data) * hessian])
    transition = np.vstack([momentum, np.hstack([np.zeros((2, 2)), eye]) + h * momentum])
    noise = np.sqrt(2 * alpha * temperature) * np.vstack([eye, h * eye])
    expected = solve_discrete_lyapunov(transition, noise @ noise.T)[2:, 2:]
    closed = temperature / num_data * np.linalg.inv(hessian @ (eye - lr / (2 * (2 - alpha)) * hessian))
    np.testing.assert_allclose(closed, expected, rtol=1e-10)


@pytest.mark.parametrize("dimensions", [2, 5])
@pytest.mark.parametrize("name", NAMES)
def test_large_steps_have_the_exact_law_of_the_discretisation(name, dimensions):
    # The largest eigenvalue times lr is near 1, so that this distribution is up to twice as wide as the target.
    mean, hessian = gaussian_target(dimensions)
    sampler = samplers(chains(500, dimensions), lr=0.7, num_data=20)[name]
    draws = run(sampler, quadratic(mean, hessian), burn_in=100, kept=200, every=4)
    covariance = discretised_covariance(name, 0.7, 20, 1.0, hessian)
    assert_moments(draws, mean, covariance)
    with pytest.raises(AssertionError):
        assert_moments(draws, mean, torch.linalg.inv(hessian) / 20)


@pytest.mark.parametrize(("temperature", "num_data"), [(1.0, 20), (0.25, 20), (1.0, 40)])
@pytest.mark.parametrize("name", NAMES)
def test_small_steps_have_the_law_of_the_target(name, temperature, num_data):
    # A quarter of the temperature is a quarter of the covariance; twice the data is half of it.
    lr = 0.04
    sampler = samplers(chains(1000, 2), lr, num_data=num_data, temperature=temperature)[name]
    draws = run(sampler, quadratic(MEAN_2, HESSIAN_2), burn_in=600, kept=40, every=20)
    target = temperature / num_data * torch.linalg.inv(HESSIAN_2)
    biased = discretised_covariance(name, lr, num_data, temperature, HESSIAN_2)
    bias = ((biased - target).abs().max() / target.diagonal().max()).item()
    assert bias < 0.02
    assert_moments(draws, MEAN_2, target, bias)


@pytest.mark.parametrize("name", NAMES)
def test_step_sizes_that_change_keep_the_distribution(name):
    # Up and down fourfold every ten steps: a momentum that depended on the step size would be too hot or too cold.
    sampler = samplers(chains(1000, 2), lr=0.04, num_data=20)[name]
    schedule = torch.optim.lr_scheduler.LambdaLR(sampler, lambda step: 0.25 if step // 10 % 2 else 1.0)
    sampler.register_step_post_hook(lambda *_: schedule.step())
    draws = run(sampler, quadratic(MEAN_2, HESSIAN_2), burn_in=600, kept=60, every=15)
    assert_moments(draws, MEAN_2, torch.linalg.inv(HESSIAN_2) / 20, bias=0.02)


@pytest.mark.parametrize("kind", [SGLD, SGHMC, PSGLD])
def test_a_prior_alone_is_the_posterior(kind):
    # Without data in the loss; PSGLD's preconditioner is then constant, 1 / eps, and its distribution exact.
    scale = {"eps": 1.0} if kind is PSGLD else {}
    theta = chains(2000, 2)
    groups = [{"params": [theta], "prior_mean": 1.0, "prior_std": 0.1}]
    sampler = kind(groups, lr=0.01, num_data=10, **scale)
    draws = run(sampler, lambda theta: 0 * theta.sum(), burn_in=100, kept=20, every=5)
    # The Hessian of U / N is 1 / (N std^2) = 10.
    covariance = 0.01 * torch.eye(2, dtype=torch.float64) / (1 - 0.01 * 10 / (2 * (1.9 if kind is SGHMC else 1)))
    assert_moments(draws, torch.ones(2, dtype=torch.float64), covariance)


@pytest.mark.parametrize(("kind", "lr"), [(SGLD, 0.005), (SGHMC, 0.001)])
def test_linear_regression_by_minibatches_has_the_conjugate_posterior(kind, lr):
    num_data, batch, noise_std, prior_std = 100, 50, 0.8, 0.5
    x = torch.randn(num_data, 3, dtype=torch.float64)
    y = x @ torch.tensor([1.0, -0.5, 0.2], dtype=torch.float64) + noise_std * torch.randn(num_data, dtype=torch.float64)
    precision = x.T @ x / noise_std**2 + torch.eye(3, dtype=torch.float64) / prior_std**2
    covariance = torch.linalg.inv(precision)
    mean = covariance @ x.T @ y / noise_std**2

    runs_of_rows = sum(torch.eye(num_data, dtype=torch.float64).roll(shift, 1) for shift in range(batch))

    def loss(theta):
        # Each chain has a batch of its own: a run of the shuffled rows from a start of its own.
        rows = torch.randperm(num_data)
        chosen = runs_of_rows[torch.randint(num_data, (len(theta),))]
        return (chosen * (y[rows] - theta @ x[rows].T) ** 2).sum() / (2 * noise_std**2 * batch)

    sampler = kind([chains(4000, 3)], lr=10 * lr, num_data=num_data, prior_std=prior_std)
    run(sampler, loss, burn_in=200, kept=1, every=1)
    sampler.param_groups[0]["lr"] = lr
    draws = run(sampler, loss, burn_in=300, kept=30, every=20)
    # The draws are wider by lr * Hessian / 2 for the steps, by lr * N * C / (2 * friction) for the gradients' noise,
    # whose covariance C is Hessian * (1 - B / N) / B; the Hessian of the mean loss has eigenvalues below 2.5.
    assert torch.linalg.eigvalsh(precision / num_data).max() < 2.5
    friction = 1.0 if kind is SGLD else 0.1
    bias = lr / 2 * 2.5 * (1 + num_data * (1 - batch / num_data) / batch / friction)
    assert bias < 0.02
    assert_moments(draws, mean, covariance, bias)


def test_the_first_steps_of_psgld_leave_nothing_far_away():
    # 20,000 weights drawn from the posterior N(0, 1 / N), each with a gradient that is small by chance for some.
    num_data, lr = 100, 0.002
    theta = torch.nn.Parameter(torch.randn(20_000, dtype=torch.float64) / num_data**0.5)
    sampler = PSGLD([theta], lr, num_data)
    for step in range(20):
        sampler.zero_grad()
        (0.5 * theta.square()).sum().backward()
        sampler.step()
        z = theta.detach() * num_data**0.5
        assert z.abs().max() < 6, step  # of a normal distribution one in 25,000 runs of 20,000 would
        if step == 0:  # the step is 0.02 of the Hessian: 0.01 too wide; 4 standard errors are 0.04
            assert z.var().item() == pytest.approx(1.0, abs=0.05)
