"""Conformal prediction sets: worked examples, and coverage over many calibration sets."""

import math

import numpy as np
import pytest
import torch

import slimbayes as sb
from slimbayes.calibration import conformal_quantile, coverage, set_size

WORKED = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.7, 0.2], [0.2, 0.2, 0.6]], dtype=torch.float64)


def of(probs: torch.Tensor) -> sb.Prediction:
    return sb.Prediction(probs.log()[None])


# ---------------------------------------------------------------------- the quantile


@pytest.mark.parametrize("level", [0.1, 0.5, 0.55, 0.9, 0.95])
@pytest.mark.parametrize("count", [19, 20, 99, 100, 1000])
def test_quantile_is_an_order_statistic_as_in_numpy(level, count):
    scores = np.random.default_rng(count).normal(size=count)
    rank = -(-(count + 1) * round(100 * level) // 100)  # whole numbers: no rounding
    found = conformal_quantile(torch.tensor(scores), level)
    assert found == np.sort(scores)[rank - 1]
    assert found == np.quantile(scores, (rank - 0.5) / count, method="inverted_cdf")  # in the middle of its step
    assert found == np.quantile(scores, max(rank - 1.5, 0) / (count - 1), method="higher")


@pytest.mark.parametrize(("level", "needed"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99), (0.45, 1)])
def test_too_few_examples_are_counted(level, needed):
    assert conformal_quantile(torch.arange(float(needed)), level) == needed - 1  # the largest is just enough
    with pytest.raises(ValueError, match=f"needs at least {needed} calibration examples, but got {needed - 1}"):
        conformal_quantile(torch.zeros(needed - 1), level)


# ---------------------------------------------------------------------- worked by hand


def test_threshold_by_hand():
    # Scores of the targets: 1 - 0.3, 1 - 0.7, 1 - 0.6; the ceil(4 * 0.5) = 2nd smallest is 0.4.
    classifier = sb.ConformalClassifier(level=0.5).fit(of(WORKED), torch.tensor([1, 1, 2]))
    assert classifier.quantiles == pytest.approx([0.4])
    new = torch.tensor([[0.61, 0.3, 0.09], [0.59, 0.21, 0.2]])
    assert classifier.sets(of(new)).tolist() == [[True, False, False], [False, False, False]]
    classifier.allow_empty = False
    assert classifier.sets(of(new)).tolist() == [[True, False, False], [True, False, False]]


def test_aps_by_hand():
    # Probability down to and with the target: 0.5 + 0.3, 0.7, 0.6 + 0.2 + 0.2 (the second of two equal classes);
    # the ceil(4 * 0.5) = 2nd smallest is 0.8.
    classifier = sb.ConformalClassifier(0.5, "aps", randomised=False).fit(of(WORKED), torch.tensor([1, 1, 1]))
    assert classifier.quantiles == pytest.approx([0.8])
    new = torch.tensor([[0.25, 0.5, 0.25], [0.4, 0.35, 0.25], [0.04, 0.06, 0.9]])
    expected = [[True, True, False], [True, True, False], [False, False, False]]
    assert classifier.sets(of(new)).tolist() == expected


def test_randomised_aps_against_a_loop():
    probs, targets = torch.rand(50, 6, dtype=torch.float64).softmax(1), torch.randint(6, (50,))
    uniform = torch.rand(50, 1, generator=torch.Generator().manual_seed(5), dtype=torch.float64).squeeze(1)

    def score(row: int, label: int) -> float:
        own = probs[row, label].item()
        return sum(p for p in probs[row].tolist() if p > own) + uniform[row].item() * own

    scores = sorted(score(row, targets[row].item()) for row in range(50))
    classifier = sb.ConformalClassifier(0.8, "aps").fit(of(probs), targets, torch.Generator().manual_seed(5))
    assert classifier.quantiles == pytest.approx([scores[math.ceil(51 * 0.8) - 1]])
    expected = [[score(row, label) <= classifier.quantiles[0] + 1e-12 for label in range(6)] for row in range(50)]
    assert classifier.sets(of(probs), torch.Generator().manual_seed(5)).tolist() == expected


def test_randomness_is_torchs_own_without_a_generator():
    classifier = sb.ConformalClassifier(0.5, "aps").fit(of(WORKED), torch.tensor([1, 1, 1]))
    new = of(torch.rand(500, 3))
    torch.manual_seed(1)
    first = classifier.sets(new)
    assert not torch.equal(first, classifier.sets(new))
    torch.manual_seed(1)
    assert torch.equal(first, classifier.sets(new))


# ---------------------------------------------------------------------- coverage

REPEATS, CALIBRATION, TEST = 400, 60, 40


def problem(seed: int, kind: str):
    """A model that is wrong, three draws of it, and targets that do not follow it."""
    generator = torch.Generator().manual_seed(seed)
    truth = 1.5 * torch.randn(CALIBRATION + TEST, 4, generator=generator)
    outputs = 2.5 * truth + torch.randn(3, *truth.shape, generator=generator)
    targets = torch.distributions.Categorical(logits=truth).sample()
    if kind == "bernoulli":
        return sb.Prediction(outputs[..., :1], sb.Bernoulli(), 3), (
            torch.rand(len(truth)) < truth[:, 0].sigmoid()
        ).float()
    return sb.Prediction(outputs, sb.Categorical(), 3), targets


@pytest.mark.parametrize("kind", ["categorical", "bernoulli"])
@pytest.mark.parametrize(
    ("score", "randomised", "exact"), [("threshold", False, True), ("aps", True, True), ("aps", False, False)]
)
def test_coverage_over_many_calibration_sets(score, randomised, exact, kind):
    """Without ties the coverage is rank / (n + 1), which lies from level to level + 1 / (n + 1)."""
    level, covered = 0.85, []
    for seed in range(REPEATS):
        split = sb.calibration_split(*problem(seed, kind), fraction=0.6, seed=seed)
        classifier = sb.ConformalClassifier(level, score, randomised).fit(*split[0])
        covered.append(coverage(classifier.sets(split[1][0]), split[1][1].long()).item())
    expected = math.ceil((CALIBRATION + 1) * level) / (CALIBRATION + 1)
    assert level <= expected <= level + 1 / (CALIBRATION + 1)
    error = np.std(covered) / math.sqrt(REPEATS)
    assert np.mean(covered) > expected - 4 * error
    if exact:
        assert np.mean(covered) < expected + 4 * error


def test_each_class_is_covered_where_that_is_asked_for():
    generator = torch.Generator().manual_seed(0)
    targets = (torch.rand(20_000, generator=generator) < 0.15).long()
    logits = torch.randn(20_000, 2, generator=generator) + torch.tensor([2.0, 0.0])
    logits[:, 1] += targets
    calibration, test = sb.calibration_split(sb.Prediction(logits[None]), targets)
    shares = {}
    for per_class in (False, True):
        sets = sb.ConformalClassifier(0.9, per_class=per_class).fit(*calibration).sets(test[0])
        shares[per_class] = [coverage(sets[test[1] == label], test[1][test[1] == label]).item() for label in (0, 1)]
    assert shares[False][1] < 0.8  # the rare class pays
    # 1500 calibration and 1500 test examples of it: a standard error of sqrt(2 * 0.09 / 1500) = 0.011
    assert shares[True] == pytest.approx([0.9, 0.9], abs=0.04)


def test_thresholds_give_the_smallest_sets_if_the_probabilities_are_right():
    logits = 1.5 * torch.randn(20_000, 4)
    split = sb.calibration_split(sb.Prediction(logits[None]), torch.distributions.Categorical(logits=logits).sample())
    threshold, aps, plain = (
        sb.ConformalClassifier(0.9, score, randomised).fit(*split[0]).sets(split[1][0])
        for score, randomised in (("threshold", False), ("aps", True), ("aps", False))
    )
    assert set_size(threshold).item() == pytest.approx(threshold.numpy().sum() / len(threshold))
    assert 1 < set_size(threshold) < set_size(aps) < set_size(plain) < 4


# ---------------------------------------------------------------------- misuse

P, Y = sb.Prediction(torch.zeros(2, 20, 3)), torch.arange(20) % 3
STEPS = sb.Prediction(torch.zeros(2, 20, 5, 3), sb.Categorical(class_dim=-1))
OVERFLOWN = sb.Prediction(torch.tensor([math.inf, 0.0, 0.0]).expand(2, 20, 3))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sb.ConformalClassifier(level=1.0), "`level`.*below 1.*got 1.0"),
        (lambda: sb.ConformalClassifier(level=90), "`level`.*such as 0.9"),
        (lambda: sb.ConformalClassifier(score="APS"), "`score`.*'threshold', 'aps'"),
        (lambda: sb.ConformalClassifier(0.99).fit(P, Y), "needs at least 99 calibration examples, but got 20"),
        (
            lambda: sb.ConformalClassifier(per_class=True).fit(P, Y),
            "at least 9 calibration examples of class 0, but got 7",
        ),
        (lambda: sb.ConformalClassifier().fit(sb.Prediction(torch.zeros(2, 0, 3)), Y[:0]), "an example at least"),
        (lambda: sb.ConformalClassifier().fit(P, Y[:3]), r"each of the 20 examples.*\(3,\)"),
        (lambda: sb.ConformalClassifier().fit(P, Y + 1), "from 0 to 2.*from 1 to 3"),
        (lambda: sb.ConformalClassifier().fit(P, torch.rand(20, 3)), "argmax"),
        (lambda: sb.ConformalClassifier().fit(P, Y + 0.5), "argmax"),
        (lambda: sb.ConformalClassifier().fit(P, Y * math.nan), "finite"),
        (lambda: sb.ConformalClassifier().fit(sb.Prediction(P.draws * math.nan), Y), "NaN"),
        (
            lambda: sb.ConformalClassifier().fit(
                sb.Prediction(torch.zeros(2, 20, 5, 3), sb.Categorical(class_dim=-1)), Y
            ),
            "not exchangeable",
        ),
        (lambda: sb.ConformalClassifier().fit(sb.Prediction(torch.zeros(2, 20, 3), sb.Gaussian()), Y), "gaussian"),
        (lambda: sb.ConformalClassifier().fit(P, Y).sets(sb.Prediction(torch.zeros(2, 5, 4))), "the 3 classes.*got 4"),
        (lambda: sb.ConformalClassifier().fit(P, Y).sets(sb.Prediction(P.draws * math.nan)), "NaN"),
        (lambda: sb.ConformalClassifier().fit(OVERFLOWN, Y), "those of 20 examples.*a logit is infinite.*float32"),
        (lambda: sb.ConformalClassifier().fit(P, Y).sets(OVERFLOWN), "those of 20 examples.*a logit is infinite"),
        (lambda: coverage(torch.zeros(2, 3), Y[:2]), "booleans"),
    ],
)
def test_misuse(call, words):
    with pytest.raises(ValueError, match=words):
        call()
