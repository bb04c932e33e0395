import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss

from slimbayes import metrics


@pytest.fixture
def case():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(300, 5, generator=generator, dtype=torch.float64) * 3
    return logits.softmax(1), torch.randint(5, (300,), generator=generator)


def test_accuracy_and_nll_agree_with_scikit_learn(case):
    probs, targets = case
    assert metrics.accuracy(probs, targets).item() == pytest.approx(accuracy_score(targets, probs.argmax(1)))
    expected = log_loss(targets, probs.numpy(), labels=list(range(5)))
    assert metrics.negative_log_likelihood(probs.log(), targets).item() == pytest.approx(expected, abs=1e-9)


def test_golden_ece_and_brier(golden):
    probs = torch.tensor(golden["calibration/logits"], dtype=torch.float64).softmax(1)
    targets = torch.tensor(golden["calibration/labels"]).long()
    ece = metrics.expected_calibration_error(probs, targets).item()
    assert ece == pytest.approx(golden["calibration/ece15"].item(), abs=1e-6)
    # TensorFlow Probability's Brier score leaves out the constant sum of squared targets, 1.
    expected = golden["calibration/brier"].mean() + 1
    assert metrics.brier_score(probs, targets).item() == pytest.approx(expected, abs=1e-6)


def test_full_confidence_falls_into_the_last_bin():
    probs = torch.tensor([[0.95, 0.05], [1.0, 0.0]])
    assert metrics.expected_calibration_error(probs, torch.tensor([0, 1]), bins=10).item() == pytest.approx(0.475)


def test_ece_bins_one_by_one(case):
    probs, targets = case
    confidence, right = probs.max(1).values.numpy(), (probs.argmax(1) == targets).numpy()
    expected = 0.0
    for b in range(15):
        inside = (confidence >= b / 15) & ((confidence < (b + 1) / 15) | (b == 14))
        if inside.any():
            expected += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert metrics.expected_calibration_error(probs, targets).item() == pytest.approx(expected, abs=1e-12)


def test_probabilities_are_not_taken_for_their_logarithms():
    with pytest.raises(ValueError, match=r"`log_probs`.*got 0\.75.*p\.log_probs"):
        metrics.negative_log_likelihood(torch.tensor([[0.25, 0.75]]), torch.tensor([0]))


@pytest.mark.parametrize(
    ("probs", "targets", "words"),
    [
        (torch.full((2, 3), 1 / 3), torch.tensor([0, 3]), "got 3"),
        (torch.tensor([[np.nan, 1.0]]), torch.tensor([0]), "NaN"),
        (torch.full((2, 3), 1 / 3), torch.tensor([0]), "targets"),
    ],
)
def test_wrong_arguments(probs, targets, words):
    with pytest.raises(ValueError, match=words):
        metrics.accuracy(probs, targets)
