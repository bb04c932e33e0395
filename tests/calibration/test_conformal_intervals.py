"""Conformal intervals, on data whose noise grows."""

import math

import numpy as np
import pytest
import torch

import slimbayes as sb
from slimbayes.calibration import coverage


def problem(seed: int, count: int):
    """Noise from 0.2 to 2; the model has its shape but half its size, and a mean that is a little wrong."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 1, generator=generator)
    noise = 0.2 + 1.8 * x
    targets = x.sin() + noise * torch.randn(count, 1, generator=generator)
    rho = torch.expm1(noise / 2).log()
    return sb.Prediction(torch.cat([x, rho], 1)[None], sb.Gaussian("predicted")), targets, x.squeeze(1)


@pytest.mark.parametrize("score", ["normalised", "absolute"])
def test_coverage_over_many_calibration_sets(score):
    level, repeats, covered = 0.9, 300, []
    for seed in range(repeats):
        p, targets, _ = problem(seed, 100)
        calibration, test = sb.calibration_split(p, targets, seed=seed)
        covered.append(
            coverage(sb.ConformalRegressor(level, score).fit(*calibration).interval(test[0]), test[1]).item()
        )
    error = np.std(covered) / math.sqrt(repeats)
    assert np.mean(covered) == pytest.approx(math.ceil(51 * level) / 51, abs=4 * error)


def test_normalised_intervals_cover_where_noise_is_large():
    p, targets, _ = problem(0, 5000)
    new, truth, x = problem(1, 5000)
    shares = {}
    for score in ("normalised", "absolute"):
        low, high = sb.ConformalRegressor(0.9, score).fit(p, targets).interval(new)
        shares[score] = [coverage((low[part], high[part]), truth[part]).item() for part in (x < 0.2, x > 0.8)]
    # About 1000 examples in each part: a standard error of 0.01. The model's mean is off by up to 0.16.
    assert shares["normalised"] == pytest.approx([0.9, 0.9], abs=0.04)
    assert shares["absolute"][0] > 0.99
    assert shares["absolute"][1] < 0.85


def test_by_hand_and_for_several_targets_at_once():
    p = sb.Prediction(torch.zeros(1, 4, 2), sb.Gaussian(noise=2.0))
    targets = torch.tensor([[1.0, -2.0], [4.0, 0.0], [-6.0, 1.0], [0.0, 8.0]])
    regressor = sb.ConformalRegressor(level=0.6).fit(p, targets)  # worst of each: 1, 2, 3, 4; the third
    assert regressor.quantile == pytest.approx(3.0)
    low, high = regressor.interval(sb.Prediction(torch.ones(1, 1, 2), sb.Gaussian(noise=1.0)))
    assert low.tolist() == [[-2.0, -2.0]]
    assert high.tolist() == [[4.0, 4.0]]
    assert coverage((low, high), torch.tensor([[0.0, 5.0]])) == 0


def test_time_first_outputs_have_a_score_for_each_example():
    outputs, targets = torch.randn(3, 20, 7, 2), torch.randn(20, 7, 2)
    first = sb.Prediction(outputs, sb.Gaussian(noise=1.0), 3)
    later = sb.Prediction(outputs.transpose(1, 2), sb.Gaussian(noise=1.0), 3, batch_dim=1)
    expected = sb.ConformalRegressor().fit(first, targets).quantile
    regressor = sb.ConformalRegressor().fit(later, targets.transpose(0, 1))
    assert regressor.quantile == expected
    other = sb.Prediction(torch.randn(3, 7, 40, 2), sb.Gaussian(noise=1.0), 3, batch_dim=1)
    (low, high), new = regressor.interval(other), torch.randn(7, 40, 2)
    by_hand = [((low[:, b] <= new[:, b]) & (new[:, b] <= high[:, b])).all().item() for b in range(40)]
    assert 0 < sum(by_hand) < 40
    assert coverage((low, high), new, batch_dim=1).item() == pytest.approx(sum(by_hand) / 40)
    with pytest.raises(ValueError, match=r"`targets` to have the shape \(7, 40, 2\).*\(40, 7, 2\)"):
        coverage((low, high), new.transpose(0, 1))
    with pytest.raises(ValueError, match=r"`targets` to have the shape \(7, 40, 2\).*\(7, 2, 40\)"):
        coverage((low, high), new.transpose(1, 2))


def test_targets_may_lack_a_last_axis_of_one():
    p, targets, _ = problem(0, 50)
    assert sb.ConformalRegressor().fit(p, targets.squeeze(1)) == sb.ConformalRegressor().fit(p, targets)


P, Y = sb.Prediction(torch.randn(2, 20)), torch.zeros(20)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sb.ConformalRegressor(level=0.0), "`level`"),
        (lambda: sb.ConformalRegressor(score="std"), "`score`.*'normalised', 'absolute'"),
        (lambda: sb.ConformalRegressor(0.96).fit(P, Y), "needs at least 24 calibration examples, but got 20"),
        (lambda: sb.ConformalRegressor().fit(sb.Prediction(torch.zeros(1, 20)), Y), "is 0 .*score='absolute'"),
        (lambda: sb.ConformalRegressor().fit(sb.Prediction(torch.zeros(1, 20, 3), sb.Categorical()), Y), "categorical"),
        (lambda: sb.ConformalRegressor().fit(P, torch.zeros(20, 2)), r"`targets`.*\(20,\).*\(20, 2\)"),
        (lambda: sb.ConformalRegressor().fit(P, Y * math.nan), "finite"),
        (lambda: sb.ConformalRegressor().fit(sb.Prediction(torch.zeros(1, 0)), Y[:0]), "an example at least"),
        (lambda: sb.ConformalRegressor(score="absolute").fit(sb.Prediction(P.draws * math.inf), Y), "finite means"),
        (
            lambda: sb.ConformalRegressor(score="absolute").fit(P, Y).interval(sb.Prediction(P.draws * math.inf)),
            "finite means",
        ),
        (lambda: coverage((torch.zeros(3), torch.ones(3)), torch.zeros(2)), "`targets`"),
    ],
)
def test_misuse(call, words):
    with pytest.raises(ValueError, match=words):
        call()
