from itertools import permutations

import numpy as np
import pytest
import torch

from slimbayes import metrics


def loop(confidence, right):
    """Return risks by the definition: answer the k surest, count the wrong ones."""
    order = np.argsort(-confidence, kind="stable")
    return [1 - right[order[: k + 1]].mean() for k in range(len(order))]


def test_curve_agrees_with_a_loop():
    confidence, right = torch.rand(83, dtype=torch.float64), torch.randint(2, (83,)).double()
    probs, targets = metrics.from_confidence(confidence, right)
    curve = metrics.risk_coverage_curve(probs, targets)
    expected = loop(confidence.numpy(), right.numpy())
    assert curve.risk.tolist() == pytest.approx(expected, abs=1e-12)
    assert curve.coverage.tolist() == pytest.approx([(k + 1) / 83 for k in range(83)])
    assert metrics.aurc(probs, targets).item() == pytest.approx(np.mean(expected), abs=1e-12)


def test_ties_are_the_mean_over_their_orders():
    confidence, right = np.array([0.9, 0.7, 0.7, 0.7, 0.2]), np.array([1.0, 1.0, 0.0, 0.0, 1.0])
    expected = np.mean([loop(confidence, right[[0, *order, 4]]) for order in permutations((1, 2, 3))], 0)
    for order in permutations(range(5)):
        kept = metrics.from_confidence(torch.from_numpy(confidence[[*order]]), torch.from_numpy(right[[*order]]))
        assert metrics.risk_coverage_curve(*kept).risk.tolist() == pytest.approx(expected, abs=1e-12)


def test_one_example_and_no_errors():
    assert metrics.aurc(torch.tensor([[0.5, 0.5]]), torch.tensor([1])).item() == 1
    assert metrics.aurc(torch.eye(3), torch.arange(3)).item() == 0
