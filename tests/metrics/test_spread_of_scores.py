import numpy as np
import pytest
import torch
from scipy.stats import bootstrap, norm, sem, t

from slimbayes import metrics


def test_standard_error_agrees_with_scipy():
    values = [0.3, 0.1, 0.25, 0.7]
    assert metrics.standard_error(values) == pytest.approx(sem(values), abs=1e-12)
    assert metrics.standard_error(torch.tensor(values)) == pytest.approx(sem(values), abs=1e-7)
    assert metrics.standard_error([0.3]) is None
    with pytest.raises(ValueError, match="at least one"):
        metrics.standard_error([])
    with pytest.raises(ValueError, match="finite.*nan"):
        metrics.standard_error([1.0, float("nan")])


def test_interval_of_a_mean_agrees_with_scipy_and_the_normal_limit():
    values = torch.rand(400, dtype=torch.float64)
    found = metrics.bootstrap_interval(None, values, resamples=4000)
    there = bootstrap((values.numpy(),), np.mean, n_resamples=4000, method="percentile", rng=0).confidence_interval
    error, mean = sem(values), values.mean().item()
    # A 2.5 % quantile of 4000 resamples has the standard error 0.04 standard errors of the mean; 0.2 is 3.5 of both.
    assert found == pytest.approx((there.low, there.high), abs=0.2 * error)
    assert found == pytest.approx((mean - 1.96 * error, mean + 1.96 * error), abs=0.2 * error)


def test_basic_interval_agrees_with_scipy():
    values = torch.rand(50, dtype=torch.float64) ** 6  # skewed, so that the two kinds differ
    there = bootstrap((values.numpy(),), np.mean, n_resamples=4000, method="basic", rng=0).confidence_interval
    for metric in (None, lambda x: x.mean()):
        found = metrics.bootstrap_interval(metric, values, resamples=4000, method="basic")
        assert found == pytest.approx((there.low, there.high), abs=0.2 * sem(values))
    low, high = metrics.bootstrap_interval(None, values, resamples=4000)
    mean = values.mean().item()
    assert found == pytest.approx((2 * mean - high, 2 * mean - low), abs=0.2 * sem(values))


@pytest.mark.slow
def test_basic_interval_of_a_calibration_error_covers_it():
    """Of 60 test sets, 95 % within 4 binomial standard errors; percentiles, all of them too high, cover few."""
    generator = torch.Generator().manual_seed(0)

    def over_confident(count):
        logits = 2 * torch.randn(count, 10, generator=generator, dtype=torch.float64)
        return (1.3 * logits).softmax(1), torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]

    truth = metrics.expected_calibration_error(*over_confident(1_000_000)).item()
    covered = {"percentile": 0, "basic": 0}
    for seed in range(60):
        drawn = over_confident(200)
        for method in covered:
            low, high = metrics.bootstrap_interval(
                metrics.expected_calibration_error, *drawn, resamples=200, seed=seed, method=method
            )
            covered[method] += low <= truth <= high
    assert covered["basic"] / 60 >= 0.95 - 4 * (0.95 * 0.05 / 60) ** 0.5
    assert covered["percentile"] / 60 < 0.7


def test_a_mean_and_the_general_way_agree():
    probs, targets = torch.rand(200, 3).softmax(1), torch.randint(3, (200,))
    fast = metrics.bootstrap_interval(metrics.brier_score, probs, targets, resamples=600)
    general = metrics.bootstrap_interval(lambda p, y: metrics.brier_score(p, y), probs, targets, resamples=600)
    width = fast[1] - fast[0]
    assert general == pytest.approx(fast, abs=0.2 * width)


def test_options_seed_and_draws_in_front():
    probs, targets = torch.rand(50, 4).softmax(1), torch.randint(4, (50,))
    arguments = (metrics.expected_calibration_error, probs, targets)
    first = metrics.bootstrap_interval(*arguments, bins=5, resamples=50)
    torch.rand(1)
    assert metrics.bootstrap_interval(*arguments, bins=5, resamples=50) == first
    assert metrics.bootstrap_interval(*arguments, bins=5, resamples=50, seed=1) != first
    assert metrics.bootstrap_interval(*arguments, bins=15, resamples=50) != first
    draws, truth = torch.randn(5, 50), torch.randn(50)
    low, high = metrics.bootstrap_interval(metrics.crps, draws, torch.ones(5, 50), truth)
    assert low < metrics.crps(draws, torch.ones(5, 50), truth).item() < high


def test_resamples_of_one_class_are_left_out():
    scores, targets = torch.tensor([0.1, 0.2, 0.3, 0.9]), torch.tensor([0, 0, 0, 1])
    assert metrics.bootstrap_interval(metrics.auc_roc, scores, targets) == (1.0, 1.0)
    with pytest.raises(ValueError, match="any resample.*both kinds"):
        metrics.bootstrap_interval(metrics.auc_roc, scores, torch.ones(4))


def test_infinite_values_do_not_become_nan():
    log_probs = torch.tensor([[0.0, -torch.inf]] * 4)
    low, high = metrics.bootstrap_interval(metrics.negative_log_likelihood, log_probs, torch.tensor([0, 0, 0, 1]))
    assert (low, high) == (0.0, torch.inf)
    with pytest.raises(ValueError, match="infinite values has no basic interval.*percentile"):
        metrics.bootstrap_interval(
            metrics.negative_log_likelihood, log_probs, torch.tensor([0, 0, 0, 1]), method="basic"
        )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.bootstrap_interval(None, torch.rand(3), level=1.0), "level.*0.95"),
        (lambda: metrics.bootstrap_interval(None, torch.rand(3), resamples=1), "resamples"),
        (lambda: metrics.bootstrap_interval(None, torch.rand(3), method="bca"), "`method`.*'bca'"),
        (lambda: metrics.bootstrap_interval(None, torch.rand(0)), "at least one example"),
        (lambda: metrics.bootstrap_interval(None, torch.rand(3, 2)), r"shape \(batch,\)"),
        (lambda: metrics.bootstrap_interval(metrics.auc_roc, torch.rand(3), torch.rand(2)), "first axis"),
        (lambda: metrics.bootstrap_interval(None, torch.rand(3), torch.rand(3)), "`arrays` without a `metric`.*got 2"),
        (lambda: metrics.bootstrap_interval(metrics.reliability_curve, torch.eye(2), torch.arange(2)), "one number"),
        (lambda: metrics.bootstrap_interval(metrics.pairwise_disagreement, torch.rand(3, 4, 2)), "one number"),
    ],
)
def test_wrong_arguments(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_every_member_alone():
    probs, targets = torch.rand(3, 20, 4).softmax(2), torch.randint(4, (20,))
    found = metrics.per_member(metrics.expected_calibration_error, probs, targets, bins=5).tolist()
    assert found == [metrics.expected_calibration_error(own, targets, bins=5).item() for own in probs]
    mean, std, truth = torch.randn(6, 20), torch.ones(6, 20), torch.randn(20)
    parts = [part.unflatten(0, (3, 2)) for part in (mean, std)]
    found = metrics.per_member(metrics.crps, parts, truth).tolist()
    assert found == [metrics.crps(mean[k : k + 2], std[k : k + 2], truth).item() for k in (0, 2, 4)]
    widths = metrics.per_member(metrics.interval_width, (mean - 1, mean + 1)).tolist()
    assert widths == pytest.approx([2.0] * 6)
    with pytest.raises(ValueError, match=r"got \[6, 5\]"):
        metrics.per_member(metrics.crps, (mean, std[:5]), truth)


def test_curves_of_every_member():
    probs, targets = torch.rand(3, 20, 4).softmax(2), torch.randint(4, (20,))
    curves = metrics.per_member(metrics.reliability_curve, probs, targets, bins=5)
    for k, own in enumerate(probs):
        alone = metrics.reliability_curve(own, targets, bins=5)
        torch.testing.assert_close(curves.accuracy[k], alone.accuracy, equal_nan=True)
        assert curves.count[k].tolist() == alone.count.tolist()


def test_arrays_with_gradients_and_of_numpy():
    probs, targets = torch.rand(20, 4).softmax(1), torch.randint(4, (20,))
    for metric in (metrics.expected_calibration_error, metrics.brier_score):
        expected = metrics.bootstrap_interval(metric, probs, targets, resamples=20)
        for other in (probs.clone().requires_grad_(), probs.numpy()):
            assert metrics.bootstrap_interval(metric, other, targets, resamples=20) == expected


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_intervals_cover_the_truth_as_often_as_they_say(level):
    """Of 300 test sets of 100 normal numbers, within 4 binomial standard errors of what the percentile method covers.

    It covers a little less than it says: the bootstrap's standard error is a normal one with n in place of n - 1.
    """
    generator = torch.Generator().manual_seed(0)
    sets = torch.randn(300, 100, generator=generator, dtype=torch.float64)
    intervals = [
        metrics.bootstrap_interval(None, one, level=level, resamples=400, seed=i) for i, one in enumerate(sets)
    ]
    covered = np.mean([low <= 0 <= high for low, high in intervals])
    factor = norm.ppf((1 + level) / 2) * (99 / 100) ** 0.5
    expected = t.cdf(factor, 99) - t.cdf(-factor, 99)
    assert abs(covered - expected) < 4 * (expected * (1 - expected) / 300) ** 0.5
