"""Nearest classes and examples, against plain NumPy on features of a plain network."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import slimbayes as sb
from slimbayes.data import DataSet, Examples, Task, load_data
from slimbayes.evaluation import _nearest as nearest
from slimbayes.evaluation._nearest import Neighbourhood, neighbourhood


def by_hand(features, labels, x):
    """Return distances, shares of examples that are nearer, and counts by class; by loops, leaving each out."""
    features, labels, x = (np.asarray(one, np.float64) for one in (features, labels, x))
    classes = np.unique(labels)
    within = sum(((features[labels == c] - features[labels == c].mean(0)) ** 2).sum(0) for c in classes)
    variance = within / (len(features) - len(classes))
    variance = np.maximum(variance, 0.01 * variance.mean())

    def distance(a, b):
        return math.sqrt(np.mean((a - b) ** 2 / variance))

    found = {}
    for c in classes:
        own = features[labels == c]
        left_out = sorted(distance(own[i], np.delete(own, i, 0).mean(0)) for i in range(len(own)))
        away = distance(x, own.mean(0))
        found[int(c)] = (away, np.searchsorted(left_out, away) / len(own), len(own))
    return found, [distance(x, one) for one in features]


@pytest.fixture
def blobs():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (60,), generator=generator)
    features = torch.randn(60, 4, generator=generator) * torch.tensor([1.0, 5.0, 0.1, 1e-6]) + 3 * labels[:, None]
    features[:, 3] = 2.0  # constant
    return features, labels


@pytest.mark.parametrize("far", [0.0, 3.0, 100.0])
def test_classes_and_examples_by_hand(blobs, far):
    features, labels = blobs
    near = Neighbourhood(features, torch.arange(100, 160), labels)
    x = features[0] + far * torch.tensor([1.0, -1.0, 0.01, 0.0])
    expected, distances = by_hand(features, labels, x)
    found = near.classes(x)
    assert [one.distance for one in found] == sorted(one.distance for one in found)
    assert {one.number for one in found} == set(expected)
    for one in found:
        assert one[1:] == pytest.approx(expected[one.number], rel=1e-6)
    order = np.argsort(distances)[:4]
    assert [one.row for one in near.examples(x, 4)] == (100 + order).tolist()
    np.testing.assert_allclose([one.distance for one in near.examples(x, 4)], np.sort(distances)[:4], rtol=1e-6)
    if far == 100.0:
        assert all(one.farther_than == 1.0 for one in found)


def test_lonely_by_hand(blobs):
    features, _ = blobs
    near = Neighbourhood(features, torch.arange(60))
    apart = []
    for i in range(60):
        _, distances = by_hand(features, np.zeros(60), features[i])
        apart.append(min(d for j, d in enumerate(distances) if j != i))
    x = features.mean(0) + 1.0
    _, distances = by_hand(features, np.zeros(60), x)
    assert near.lonelier_than(x) == pytest.approx(np.mean(np.array(apart) < min(distances)))
    assert near.lonelier_than(features[3]) == 0.0
    assert near.lonelier_than(x + 1e4) == 1.0
    assert Neighbourhood(features[:1], torch.arange(1)).lonelier_than(x) is None


def test_few_examples():
    near = Neighbourhood(torch.tensor([[1.0, 1.0], [3.0, 1.0]]), torch.tensor([7, 2]), torch.tensor([0, 4]))
    found = near.classes(torch.tensor([3.0, 2.0]))
    assert [one.number for one in found] == [4, 0]  # those between have no examples
    assert all(one.farther_than is None and one.examples == 1 for one in found)
    assert found[0].distance == pytest.approx(math.sqrt(1 / 2))  # no spread to scale by: plain differences
    assert near.examples(torch.tensor([3.0, 2.0]), count=5)[0].row == 2


@pytest.mark.parametrize("method", [sb.deterministic, lambda net: sb.batch_ensemble(net, members=3, init="sign")])
def test_the_members_of_a_model_one_by_one(method, monkeypatch):
    """In blocks of 8 examples; features of folded members are computed layer by layer."""
    data = load_data("iris")
    torch.manual_seed(0)
    model = method(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)))
    monkeypatch.setattr(nearest, "NUMBERS", 8 * 4 * model.members)
    done = []
    near = neighbourhood(model, data, limit=40, seed=3, progress=lambda *counts: done.append(counts))
    raw, labels = data.train.fetch(near.rows)
    (inputs,) = data.preparation(*raw)
    expected = torch.cat([model.member(k)[:2](inputs) for k in range(model.members)], 1).detach()
    torch.testing.assert_close(near.features, expected)
    assert torch.equal(near.labels, labels)
    assert (done[:2], done[-1]) == ([(1, 40), (9, 40)], (40, 40))
    by_class, _ = by_hand(expected, labels, expected[5])
    for one in near.classes(near.features[5]):
        assert one[1:] == pytest.approx(by_class[one.number], rel=1e-5)


def test_rows_are_a_choice_without_repetition_within_bounded_memory(monkeypatch):
    data = load_data("digits")
    model = sb.deterministic(nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Linear(5, 10)))
    near = neighbourhood(model, data, limit=100)
    assert (len(set(near.rows.tolist())), near.features.shape) == (100, (100, 5))
    assert not torch.equal(near.rows, neighbourhood(model, data, limit=100, seed=1).rows)
    assert len(neighbourhood(model, data, limit=5000).rows) == len(data.train)
    monkeypatch.setattr(nearest, "KEPT", 5 * 30)
    assert len(neighbourhood(model, data, limit=100).rows) == len(neighbourhood(model, data, limit=100).features) == 30


@pytest.mark.parametrize(("likelihood", "targets"), [("gaussian", torch.randn(9)), ("bernoulli", torch.ones(9, 2))])
def test_real_and_several_targets_have_no_classes(likelihood, targets):
    data = DataSet("toy", Examples((torch.randn(9, 2),), targets), None, None, Task(likelihood, 1, (2,)))
    assert neighbourhood(sb.deterministic(nn.Linear(2, 1)), data).labels is None
