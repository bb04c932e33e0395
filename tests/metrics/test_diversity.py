from itertools import combinations, permutations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine
from scipy.stats import entropy

from slimbayes import Prediction, metrics


@pytest.fixture
def members():
    return (2 * torch.randn(4, 30, 5, dtype=torch.float64)).softmax(2)


def test_disagreement_pair_by_pair(members):
    labels = members.argmax(2).numpy()
    pairs = np.array([[(a != b).mean() for b in labels] for a in labels])
    np.testing.assert_allclose(metrics.pairwise_disagreement(members), pairs, atol=1e-12)
    expected = np.mean([pairs[i, j] for i, j in combinations(range(4), 2)])
    assert metrics.disagreement(members).item() == pytest.approx(expected, abs=1e-12)
    each = Prediction(members.log(), members=4).disagreement
    torch.testing.assert_close(metrics.disagreement(members, reduction="none"), each, rtol=0, atol=1e-12)


def test_disagreement_normalised_by_the_members_error(members):
    targets = torch.randint(5, (30,))
    error = 1 - np.mean([(labels == targets.numpy()).mean() for labels in members.argmax(2).numpy()])
    expected = metrics.disagreement(members).item() / error
    assert metrics.normalised_disagreement(members, targets).item() == pytest.approx(expected, abs=1e-12)


def test_members_that_are_always_right_have_no_normalised_disagreement():
    assert metrics.normalised_disagreement(torch.eye(2).repeat(3, 1, 1), torch.tensor([0, 1])).isnan()


def test_kl_and_cosine_pair_by_pair(members):
    p = members.numpy()
    kl = np.mean([entropy(p[i], p[j], axis=1).mean() for i, j in permutations(range(4), 2)])
    assert metrics.pairwise_kl(members.log()).item() == pytest.approx(kl, abs=1e-9)
    similar = np.mean([1 - cosine(p[i, b], p[j, b]) for i, j in combinations(range(4), 2) for b in range(30)])
    assert metrics.cosine_similarity(members).item() == pytest.approx(similar, abs=1e-12)


def test_kl_of_sure_members():
    log_probs = torch.tensor([[[0.0, -1000.0]], [[-1000.0, 0.0]]])
    assert metrics.pairwise_kl(log_probs).item() == 1000
    same = torch.tensor([[[0.0, -torch.inf]], [[0.0, -torch.inf]]])
    assert metrics.pairwise_kl(same).item() == 0
    never = torch.tensor([[[0.0, -torch.inf]], [[0.5, 0.5]]])
    never[1] = never[1].log()
    assert metrics.pairwise_kl(never).item() == torch.inf


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.disagreement(torch.rand(1, 4, 2)), r"at least two members, but got \(1, 4, 2\)"),
        (lambda: metrics.disagreement(torch.rand(4, 2)), r"\(members, batch, classes\)"),
        (lambda: metrics.pairwise_kl(torch.full((2, 3, 2), 0.5)), "`member_log_probs`.*logarithms"),
        (lambda: metrics.cosine_similarity(torch.full((2, 3, 2), -0.5)), "`member_probs`.*probabilities"),
        (lambda: metrics.disagreement(torch.full((2, 3, 2), torch.nan)), "NaN"),
        (lambda: metrics.disagreement(torch.rand(2, 0, 2)), "at least one example"),
        (lambda: metrics.normalised_disagreement(torch.rand(2, 3, 2), torch.zeros(2)), r"`targets` of shape \(3,\)"),
        (lambda: metrics.normalised_disagreement(torch.rand(2, 1, 2), torch.tensor([2])), "from 0 to 1, but got 2"),
        (lambda: metrics.cosine_similarity(torch.zeros(2, 3, 2)), "`member_probs`.*sum of 0"),
        (lambda: metrics.pairwise_kl(torch.full((2, 3, 2), -2.0)), "`member_log_probs`.*sum of 0.27"),
    ],
)
def test_wrong_arguments(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_half_precision_may_exceed_one_by_its_rounding():
    members = torch.tensor([[[1.0078, 0.0]], [[1.0, 0.0]]], dtype=torch.bfloat16)
    assert metrics.cosine_similarity(members).item() == pytest.approx(1, abs=1e-12)
