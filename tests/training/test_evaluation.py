"""Scores against scikit-learn, SciPy and plain formulas."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.metrics import log_loss
from torch import nn

import slimbayes as sb
from slimbayes.data.dataset import DataSet, Examples, Task
from slimbayes.training.config import Evaluation
from slimbayes.training.evaluation import evaluate


def scored(model, likelihood, x, y, task, samples=0):
    model.likelihood = sb.ELBO(model, num_data=10, likelihood=likelihood).likelihood
    examples = Examples((x,), y)
    return evaluate(
        model, examples, DataSet("toy", examples, examples, None, task), Evaluation(samples=samples), seed=3
    )


def test_scores_of_dropout_rest_on_eight_draws_by_default():
    torch.manual_seed(0)
    model, x, y = sb.mc_dropout(nn.Linear(4, 3), 0.5), torch.randn(50, 4), torch.randint(3, (50,))
    one, eight, default = (
        scored(model, "categorical", x, y, Task("categorical", 3, (4,)), samples=samples) for samples in (1, 8, None)
    )
    assert default == eight != one


def test_classes():
    model, x, y = sb.batch_ensemble(nn.Linear(4, 3), 2), torch.randn(50, 4), torch.randint(3, (50,))
    found = scored(model, "categorical", x, y, Task("categorical", 3, (4,)))
    probs = model(x, samples=0).softmax(-1).mean(0).detach().numpy()
    assert found["nll"] == pytest.approx(log_loss(y, probs, labels=[0, 1, 2]), rel=1e-5)
    assert found["accuracy"] == pytest.approx((probs.argmax(1) == y.numpy()).mean())
    expected = sb.metrics.expected_calibration_error(torch.from_numpy(probs), y)
    assert found["ece"] == pytest.approx(expected.item(), abs=1e-6)
    one, other = model(x, samples=0).argmax(-1).numpy()
    assert found["disagreement"] == pytest.approx((one != other).mean())
    assert found["member_accuracy"] == pytest.approx(((one == y.numpy()).mean() + (other == y.numpy()).mean()) / 2)


@pytest.mark.parametrize("labels", [1, 3])
def test_yes_or_no(labels):
    model, x = sb.deterministic(nn.Linear(4, labels)), torch.randn(40, 4)
    y = torch.randint(2, (40, labels)).squeeze(1) if labels == 1 else torch.randint(2, (40, labels))
    found = scored(model, "bernoulli", x, y, Task("bernoulli", labels, (4,)))
    yes, truth = torch.sigmoid(model.net(x)).detach().numpy().reshape(40, labels), y.numpy().reshape(40, labels)
    each = [log_loss(truth[:, label], yes[:, label], labels=[0, 1]) for label in range(labels)]
    assert found["nll"] == pytest.approx(sum(each), rel=1e-5)
    assert found["accuracy"] == pytest.approx(((yes > 0.5) == truth).mean())
    confidence = np.maximum(yes, 1 - yes).ravel()
    two = torch.from_numpy(np.stack([confidence, 1 - confidence], 1))
    right = torch.from_numpy(((yes > 0.5) == truth).ravel())
    assert found["ece"] == pytest.approx(sb.metrics.expected_calibration_error(two, (~right).long()).item(), abs=1e-6)


@pytest.mark.parametrize("targets", [1, 2])
def test_a_regression_is_scored_in_its_own_units(targets):
    model, x, y = sb.deterministic(nn.Linear(4, targets)), torch.randn(40, 4), torch.randn(40, targets)
    task = Task("gaussian", targets, (4,), target_mean=7.0, target_std=3.0)
    found = scored(model, sb.Gaussian(noise=0.5), x, y.squeeze(1) if targets == 1 else y, task)
    mean, truth = 7 + 3 * model.net(x).detach().numpy(), 7 + 3 * y.numpy()
    assert found["nll"] == pytest.approx(-norm(mean, 1.5).logpdf(truth).sum(1).mean(), rel=1e-5)
    assert found["rmse"] == pytest.approx(np.sqrt(((mean - truth) ** 2).mean()), rel=1e-5)


def test_neither_mode_nor_generators_are_changed():
    model = sb.rank1(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)), 2).train()
    state = torch.get_rng_state()
    x, y = torch.zeros(5, 4), torch.zeros(5, dtype=torch.long)
    first = scored(model, "categorical", x, y, Task("categorical", 3, (4,)), samples=2)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert scored(model, "categorical", x, y, Task("categorical", 3, (4,)), samples=2) == first
