"""Elliptical slice sampling, on targets whose moments are known."""

import math

import pytest
import torch

from slimbayes.mcmc import effective_sample_size
from slimbayes.mcmc.elliptical_slice import elliptical_slice


def gaussian_target(dimensions, prior_std):
    """Return a Gaussian log-likelihood, and mean and covariance of the posterior."""
    generator = torch.Generator().manual_seed(dimensions)
    root = torch.randn(dimensions, dimensions, generator=generator, dtype=torch.float64)
    precision = root @ root.T + 0.5 * torch.eye(dimensions, dtype=torch.float64)
    at = torch.randn(dimensions, generator=generator, dtype=torch.float64)
    prior = torch.eye(dimensions, dtype=torch.float64) / torch.as_tensor(prior_std).double() ** 2
    covariance = torch.linalg.inv(precision + prior)
    return lambda z: -(z - at) @ precision @ (z - at) / 2, covariance @ precision @ at, covariance


def standard_errors(samples):
    """Return the Monte Carlo standard error of the mean of each column, from its effective sample size."""
    effective = torch.as_tensor(effective_sample_size(samples.unsqueeze(0), rank_normalised=False))
    return samples.std(0) / effective.sqrt()


@pytest.mark.parametrize(
    ("dimensions", "prior_std"), [(1, 1.0), (1, 3.0), (3, 0.7), (3, torch.tensor([0.5, 1.0, 2.0]).double())]
)
def test_it_recovers_a_gaussian_posterior(dimensions, prior_std):
    log_likelihood, mean, covariance = gaussian_target(dimensions, prior_std)
    z = elliptical_slice(
        log_likelihood,
        torch.zeros(dimensions, dtype=torch.float64),
        prior_std=prior_std,
        samples=3000,
        burn=50,
        generator=torch.Generator().manual_seed(0),
    )
    assert ((z.mean(0) - mean).abs() < 4.5 * standard_errors(z)).all()
    products = ((z - mean).unsqueeze(2) * (z - mean).unsqueeze(1)).flatten(1)
    assert ((products.mean(0) - covariance.flatten()).abs() < 4.5 * standard_errors(products)).all()


def test_a_likelihood_that_is_zero_somewhere():
    z = elliptical_slice(
        lambda z: 0.0 if z > 0 else -math.inf,
        torch.ones(1),
        samples=3000,
        generator=torch.Generator().manual_seed(0),
    )
    assert (z > 0).all()
    assert (z.mean(0) - (2 / math.pi) ** 0.5).abs() < 4.5 * standard_errors(z)  # half-normal


def test_the_number_of_transitions():
    steps = []
    z = elliptical_slice(lambda z: 0.0, torch.zeros(2), samples=5, burn=3, thin=2, after_step=lambda: steps.append(1))
    assert z.shape == (5, 2)
    assert len(steps) == 13


def test_burn_and_thin_only_leave_states_out():
    def run(**options):
        return elliptical_slice(
            lambda z: -z.sum().square(), torch.zeros(2), generator=torch.Generator().manual_seed(1), **options
        )

    assert torch.equal(run(samples=4, burn=2, thin=3), run(samples=14)[4::3])


def test_misuse_is_named():
    with pytest.raises(ValueError, match="`start` to have a finite log-likelihood, but got -inf"):
        elliptical_slice(lambda z: -math.inf, torch.zeros(1))
    with pytest.raises(ValueError, match="`samples` to be an integer of at least 1"):
        elliptical_slice(lambda z: 0.0, torch.zeros(1), samples=0)
    falling = iter(range(0, -(10**6), -100))
    with pytest.raises(ValueError, match="same value for the same point.*without dropout"):
        elliptical_slice(lambda z: float(next(falling)), torch.zeros(1))


@pytest.mark.parametrize("std", [0.0, -1.0, float("nan"), torch.tensor([1.0, 0.0])])
def test_a_prior_has_a_spread(std):
    with pytest.raises(ValueError, match="`prior_std` to be a finite number above 0"):
        elliptical_slice(lambda z: 0.0, torch.zeros(2), prior_std=std)


@pytest.mark.parametrize("none", [-math.inf, math.nan])
def test_points_without_a_likelihood_are_never_visited(none):
    generator = torch.Generator().manual_seed(0)
    z = elliptical_slice(lambda z: 0.0 if z > 0 else none, torch.ones(1), samples=4000, generator=generator)
    assert (z > 0).all()
    # The half-normal distribution; the chain's draws are worth a third of as many independent ones at least.
    assert abs(z.mean().item() - (2 / math.pi) ** 0.5) < 4.5 * ((1 - 2 / math.pi) / (4000 / 3)) ** 0.5
