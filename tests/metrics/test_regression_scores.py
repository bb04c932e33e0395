from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.metrics import root_mean_squared_error

from slimbayes import Gaussian, Prediction, metrics


def mixture_cdf(mean, std):
    return lambda z: norm.cdf(z, mean, std).mean()


def integral(cdf, y, low, high, points=()):
    """Return the CRPS by its definition."""
    below = quad(lambda z: cdf(z) ** 2, low, y, limit=500, points=[p for p in points if low < p < y] or None)[0]
    above = quad(lambda z: (1 - cdf(z)) ** 2, y, high, limit=500, points=[p for p in points if y < p < high] or None)[0]
    return below + above


@pytest.mark.parametrize("y", [-2.0, 0.3, 7.0])
@pytest.mark.parametrize("draws", [1, 2, 5])
def test_crps_of_a_mixture_is_the_integral(y, draws):
    rng = np.random.default_rng(draws)
    mean, std = rng.normal(size=draws), rng.uniform(0.1, 2, draws)
    expected = integral(mixture_cdf(mean, std), y, -25, 25, mean)
    found = metrics.crps(torch.tensor(mean)[:, None], torch.tensor(std)[:, None], torch.tensor([y])).item()
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("y", [-2.0, 0.3, 7.0])
@pytest.mark.parametrize("draws", [1, 2, 7])
def test_crps_of_bare_draws_is_the_integral(y, draws):
    values = np.random.default_rng(draws).normal(size=draws).round(1)
    knots = np.unique([*values, y])
    expected = 0.0
    for left, right in pairwise(knots):  # the integrand is constant between knots
        expected += (right - left) * ((values <= left).mean() - (left >= y)) ** 2
    columns, target = torch.tensor(values)[:, None], torch.tensor([y], dtype=torch.float64)
    assert metrics.crps(columns, None, target).item() == pytest.approx(expected, abs=1e-12)
    zeros = torch.zeros_like(columns)
    assert metrics.crps(columns, zeros, target).item() == pytest.approx(expected, abs=1e-12)


def test_crps_where_some_draws_have_no_noise():
    mean, std = np.array([0.0, 1.0, -1.0]), np.array([0.5, 1e-7, 0.0])
    expected = integral(mixture_cdf(mean, np.maximum(std, 1e-7)), 0.4, -10, 10, mean)
    found = metrics.crps(torch.tensor(mean)[:, None], torch.tensor(std)[:, None], torch.tensor([0.4])).item()
    assert found == pytest.approx(expected, abs=1e-6)


def test_crps_of_many_draws_approaches_the_distribution():
    generator = torch.Generator().manual_seed(1)
    draws = torch.randn(20_000, 1, generator=generator, dtype=torch.float64)
    expected = metrics.crps(torch.zeros(1, 1), torch.ones(1, 1), torch.tensor([0.5])).item()
    # Standard error of mean |x - y| over 20,000 draws, about 0.6 / 141.
    assert metrics.crps(draws, None, torch.tensor([0.5])).item() == pytest.approx(expected, abs=0.015)


def test_nll_of_the_mixture_agrees_with_scipy_and_the_likelihood():
    mean, std, y = torch.randn(4, 6).double(), torch.rand(4, 6).double() + 0.1, torch.randn(6).double()
    expected = -np.log(norm.pdf(y, mean, std).mean(0))
    found = metrics.gaussian_negative_log_likelihood(mean, std, y, reduction="none")
    assert found.tolist() == pytest.approx(expected, abs=1e-9)
    outputs, several = torch.randn(3, 5, 4), torch.randn(5, 2)
    p = Prediction(outputs, Gaussian(noise="predicted"))
    found = metrics.gaussian_negative_log_likelihood(*p.moments, several, reduction="none")
    torch.testing.assert_close(found, -p.log_likelihood(several).double(), rtol=0, atol=1e-5)


def test_nll_far_in_the_tail_is_finite():
    found = metrics.gaussian_negative_log_likelihood(torch.zeros(2, 1), torch.ones(2, 1), torch.tensor([1e4])).item()
    assert found == pytest.approx(-norm.logpdf(1e4), rel=1e-12)


def test_rmse_agrees_with_scikit_learn():
    predictions, targets = torch.randn(20, 3), torch.randn(20, 3)
    expected = np.sqrt(np.square(predictions.numpy() - targets.numpy()).mean())
    assert metrics.root_mean_squared_error(predictions, targets).item() == pytest.approx(expected, abs=1e-6)
    expected = root_mean_squared_error(targets[:, 0], predictions[:, 0])
    found = metrics.root_mean_squared_error(predictions[:, :1], targets[:, 0]).item()  # a last axis of one is dropped
    assert found == pytest.approx(expected, abs=1e-6)


def test_intervals_by_hand():
    low, high = torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 5.0]])
    targets = torch.tensor([[1.0, 3.0], [1.0, 0.0]])
    assert metrics.interval_coverage(low, high, targets, reduction="none").tolist() == [0.5, 0.5]
    assert metrics.interval_width(low, high, reduction="none").tolist() == [1.5, 2.0]
    assert metrics.interval_width(low, high).item() == 1.75


def test_interval_of_a_normal_covers_its_level():
    y = torch.randn(4000, generator=torch.Generator().manual_seed(0))
    low, high = Prediction(torch.zeros(2, 4000), Gaussian(noise=1.0)).interval(0.9)
    # Four binomial standard errors.
    assert metrics.interval_coverage(low, high, y).item() == pytest.approx(0.9, abs=4 * (0.09 / 4000) ** 0.5)
    assert metrics.interval_width(low, high).item() == pytest.approx(2 * norm.ppf(0.95), abs=1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.root_mean_squared_error(torch.rand(4, 3), torch.rand(4)), r"`predictions`.*\(4,\).*\(4, 3\)"),
        (lambda: metrics.crps(torch.rand(4, 3), None, torch.rand(4)), "`mean`.*targets for each draw"),
        (lambda: metrics.crps(torch.rand(2, 3), -torch.ones(2, 3), torch.rand(3)), "`std`.*at least 0"),
        (lambda: metrics.crps(torch.rand(2, 1), None, torch.tensor([torch.nan])), "`targets`.*NaN"),
        (
            lambda: metrics.gaussian_negative_log_likelihood(torch.rand(2, 3), torch.zeros(2, 3), torch.rand(3)),
            "above 0, but got 0.*crps",
        ),
        (lambda: metrics.interval_width(torch.ones(2), torch.zeros(2)), "`low` to be at most `high`, but got 1 and 0"),
        (lambda: metrics.interval_width(torch.ones(0), torch.zeros(0)), "at least one example"),
    ],
)
def test_wrong_arguments(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("std", [None, torch.ones(2, 2)])
def test_crps_of_an_infinite_draw_is_infinite(std):
    draws = torch.tensor([[torch.inf, 0.0], [0.0, 0.0]])
    found = metrics.crps(draws, std, torch.zeros(2), reduction="none")
    assert found[0] == torch.inf
    assert found[1].isfinite()


def test_single_numbers_need_an_axis():
    with pytest.raises(ValueError, match=r"\(batch, \*\), but got single numbers"):
        metrics.root_mean_squared_error(torch.tensor(1.0), torch.tensor(2.0))
