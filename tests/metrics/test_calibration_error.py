import numpy as np
import pytest
import torch

from slimbayes import metrics


@pytest.fixture
def case():
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(300, 5, generator=generator, dtype=torch.float64) * 3).round(decimals=1)
    return logits.softmax(1), torch.randint(5, (300,), generator=generator)


def bins_one_by_one(confidence, right, bins=15):
    """Return the calibration error by the definition, in a loop."""
    error = 0.0
    for b in range(bins):
        inside = (confidence >= b / bins) & ((confidence < (b + 1) / bins) | (b == bins - 1))
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return error


def test_golden_ece(golden):
    probs = torch.tensor(golden["calibration/logits"], dtype=torch.float64).softmax(1)
    targets = torch.tensor(golden["calibration/labels"]).long()
    ece = metrics.expected_calibration_error(probs, targets).item()
    assert ece == pytest.approx(golden["calibration/ece15"].item(), abs=1e-6)


def test_full_confidence_falls_into_the_last_bin():
    probs, targets = torch.tensor([[0.95, 0.05], [1.0, 0.0]]), torch.tensor([0, 1])
    assert metrics.expected_calibration_error(probs, targets, bins=10).item() == pytest.approx(0.475)
    metric = metrics.ExpectedCalibrationError(bins=10)
    metric.update(probs, targets)
    assert metric.compute().item() == pytest.approx(0.475)


def test_confidence_zero_and_one_are_binned():
    confidence, right = torch.tensor([0.0, 0.0, 1.0, 1.0]), torch.tensor([1, 0, 1, 1])
    probs, targets = metrics.from_confidence(confidence, right)
    assert metrics.expected_calibration_error(probs, targets).item() == pytest.approx(0.25)
    curve = metrics.reliability_curve(probs, targets, bins=4)
    assert curve.count.tolist() == [2, 0, 0, 2]
    assert curve.edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert curve.accuracy[[0, 3]].tolist() == [0.5, 1]
    assert curve.confidence[[0, 3]].tolist() == [0, 1]
    assert curve.accuracy[1:3].isnan().all()
    assert curve.confidence[1:3].isnan().all()


@pytest.mark.parametrize("bins", [1, 10, 15, 100])
def test_every_edge_belongs_to_the_bin_that_it_opens(bins):
    confidence = torch.arange(bins + 1, dtype=torch.float64) / bins
    count = metrics.reliability_curve(*metrics.from_confidence(confidence, torch.ones(bins + 1)), bins=bins).count
    assert count.tolist() == [1] * (bins - 1) + [2]


@pytest.mark.parametrize("bins", [10, 15, 100])
@pytest.mark.parametrize("wide", [False, True])
def test_single_precision_edges_open_their_bins_too(bins, wide):
    # 0.7 and 0.9 in single precision are below 0.7 and 0.9 in double.
    confidence = torch.tensor([b / bins for b in range(bins + 1)], dtype=torch.float32)
    confidence = confidence.double() if wide else confidence  # as when blocks are joined in double
    count = metrics.reliability_curve(*metrics.from_confidence(confidence, torch.ones(bins + 1)), bins=bins).count
    assert count.tolist() == [1] * (bins - 1) + [2]


def test_ece_bins_one_by_one(case):
    probs, targets = case
    confidence, right = probs.max(1).values.numpy(), (probs.argmax(1) == targets).numpy()
    expected = bins_one_by_one(confidence, right)
    assert metrics.expected_calibration_error(probs, targets).item() == pytest.approx(expected, abs=1e-12)
    kept = metrics.from_confidence(torch.from_numpy(confidence), torch.from_numpy(right))
    assert metrics.expected_calibration_error(*kept).item() == pytest.approx(expected, abs=1e-12)


def test_class_wise_error_is_the_mean_over_classes_of_one_by_one(case):
    probs, targets = case
    expected = np.mean([bins_one_by_one(probs[:, c].numpy(), (targets == c).numpy()) for c in range(5)])
    assert metrics.classwise_calibration_error(probs, targets).item() == pytest.approx(expected, abs=1e-12)


def test_adaptive_bins_by_hand():
    # Sorted confidences .5 .6 | .7 .8 | .9 with tensor_split's sizes 2, 2, 1.
    confidence, right = torch.tensor([0.9, 0.5, 0.8, 0.6, 0.7]), torch.tensor([1, 0, 1, 1, 0])
    found = metrics.adaptive_calibration_error(*metrics.from_confidence(confidence.double(), right), bins=3)
    assert found.item() == pytest.approx((abs(0.5 + 0.6 - 1) + abs(0.7 + 0.8 - 1) + abs(0.9 - 1)) / 5, abs=1e-7)


def test_adaptive_error_without_ties_agrees_with_a_loop():
    confidence, right = torch.rand(97, dtype=torch.float64), torch.randint(2, (97,))
    order = np.argsort(confidence.numpy())
    gaps = (confidence.numpy() - right.numpy())[order]
    expected = sum(abs(part.sum()) for part in np.array_split(gaps, 15)) / 97
    found = metrics.adaptive_calibration_error(*metrics.from_confidence(confidence, right))
    assert found.item() == pytest.approx(expected, abs=1e-12)


def test_adaptive_error_of_ties_does_not_depend_on_their_order():
    confidence, right = torch.tensor([1.0] * 6 + [0.5] * 4), torch.tensor([1, 1, 1, 0, 0, 0, 1, 0, 1, 0])
    values = set()
    for _ in range(10):
        order = torch.randperm(10)
        probs, targets = metrics.from_confidence(confidence[order], right[order])
        values.add(round(metrics.adaptive_calibration_error(probs, targets, bins=5).item(), 12))
    assert values == {0.3}  # the sure ones are right half the time: 0.6 * 0.5


def test_fewer_examples_than_bins():
    probs, targets = torch.tensor([[0.75, 0.25], [0.5, 0.5]]), torch.tensor([0, 1])
    assert metrics.adaptive_calibration_error(probs, targets).item() == pytest.approx((0.25 + 0.5) / 2)


def test_signed_error_is_positive_when_over_confident(case):
    probs, targets = case
    expected = probs.max(1).values.mean() - (probs.argmax(1) == targets).double().mean()
    assert metrics.signed_calibration_error(probs, targets).item() == pytest.approx(expected.item(), abs=1e-12)
    sure = torch.tensor([[1.0, 0.0]])
    assert metrics.signed_calibration_error(sure, torch.tensor([1])).item() == 1
    unsure = torch.tensor([[0.5, 0.5]])
    assert metrics.signed_calibration_error(unsure, torch.tensor([0])).item() == -0.5


def test_bins_are_counted():
    for metric in (metrics.expected_calibration_error, metrics.adaptive_calibration_error):
        with pytest.raises(ValueError, match="bins.*got 0"):
            metric(torch.eye(2), torch.tensor([0, 1]), bins=0)
