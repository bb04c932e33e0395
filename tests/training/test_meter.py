"""Means and counts against plain arithmetic."""

import math

import numpy as np
import pytest
import torch

import slimbayes as sb
from slimbayes.training.meter import Meter, NonFiniteLoss, correct

STEPS = [(2.0, 30.0, 0.1, 2.5, 3.0, 4), (1.0, 20.0, 0.2, 1.5, 5.0, 6), (4.0, 10.0, 0.3, 4.5, 1.0, 2)]


def feed(meter, steps, start=1):
    for step, (nll, kl, beta, loss, right, examples) in enumerate(steps, start):
        tensors = (torch.tensor(x) for x in (nll, kl, loss, right))
        nll, kl, loss, right = tensors
        meter.add(step, nll, kl, beta, loss, right, examples)


@pytest.mark.parametrize("patience", [1, 2, 50])
def test_means_over_examples(patience):
    meter = Meter(patience)
    feed(meter, STEPS[:2])
    recent = meter.recent()
    assert (recent.nll, recent.kl, recent.beta, recent.loss) == pytest.approx((1.4, 24.0, 0.2, 1.9))
    assert (recent.accuracy, recent.examples) == (0.8, 10)
    feed(meter, STEPS[2:], 3)
    assert meter.recent().nll == 4.0
    whole, rows = meter.whole(), np.array(STEPS)
    assert whole.nll == pytest.approx(np.average(rows[:, 0], weights=rows[:, 5]))
    assert whole.loss == pytest.approx(np.average(rows[:, 3], weights=rows[:, 5]))
    assert (whole.beta, whole.examples, whole.accuracy) == (0.3, 12, 0.75)


def test_sums_over_processes():
    meter = Meter()
    feed(meter, STEPS[:1])
    means = meter.whole(lambda own: own + torch.tensor([6.0, 120.0, 9.0, 1.0, 4.0]))  # another process's sums
    assert (means.nll, means.kl, means.loss, means.accuracy, means.examples) == (1.75, 30.0, 2.375, 0.5, 8)


@pytest.mark.parametrize("patience", [1, 3])
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_the_first_step_that_is_not_finite_is_named(wrong, patience):
    steps = [STEPS[0], (wrong, 20.0, 0.2, wrong, 5.0, 6), (wrong, 1.0, 0.2, wrong, 5.0, 6)]
    with pytest.raises(NonFiniteLoss, match=f"step 2: loss {wrong}, NLL {wrong}, KL 20.0, beta 0.2"):
        feed(Meter(patience), steps)


def test_no_classes_no_accuracy():
    meter = Meter()
    meter.add(1, torch.tensor(1.0), torch.tensor(1.0), 1.0, torch.tensor(2.0), None, 3)
    assert meter.whole().accuracy is None


LOGITS = torch.randn(3, 20, 4, generator=torch.Generator().manual_seed(0)) * 3


def test_correct_classes_are_those_of_the_mixture():
    targets = torch.arange(20) % 4
    expected = (LOGITS.softmax(-1).mean(0).argmax(-1) == targets).sum()
    assert correct(sb.Categorical(), LOGITS, targets) == expected
    assert correct(sb.Categorical(class_dim=2), LOGITS, targets) == expected
    assert correct(sb.Categorical(), 1000 * LOGITS[:1], targets) == (LOGITS[0].argmax(-1) == targets).sum()


def test_of_several_labels_their_share_counts():
    targets = (torch.arange(80).view(20, 4) % 3 == 0).float()
    expected = ((LOGITS.sigmoid().mean(0) > 0.5).float() == targets).float().mean(1).sum()
    assert correct(sb.Bernoulli(), LOGITS, targets) == pytest.approx(expected.item())
    one = correct(sb.Bernoulli(), LOGITS[..., :1], targets[:, 0])
    assert one == ((LOGITS[..., 0].sigmoid().mean(0) > 0.5).float() == targets[:, 0]).sum()


def test_real_values_are_not_counted():
    assert correct(sb.Gaussian(), LOGITS, torch.zeros(20, 4)) is None
