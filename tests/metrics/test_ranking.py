import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from slimbayes import metrics


@pytest.mark.parametrize("decimals", [1, 6])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_areas_agree_with_scikit_learn(decimals, share):
    targets = (torch.rand(400) < share).long()
    scores = (torch.rand(400, dtype=torch.float64) + targets / 2).round(decimals=decimals)
    assert metrics.auc_roc(scores, targets).item() == pytest.approx(roc_auc_score(targets, scores), abs=1e-12)
    assert metrics.auc_pr(scores, targets).item() == pytest.approx(average_precision_score(targets, scores), abs=1e-12)


def test_all_scores_tied():
    scores, targets = torch.zeros(4), torch.tensor([1, 0, 0, 0])
    assert metrics.auc_roc(scores, targets).item() == 0.5
    assert metrics.auc_pr(scores, targets).item() == 0.25


def test_infinite_scores_have_ranks():
    scores = torch.tensor([-torch.inf, 0.0, torch.inf])
    assert metrics.auc_roc(scores, torch.tensor([0, 1, 1])).item() == 1


def test_the_order_does_not_matter():
    scores, targets, order = torch.randint(3, (50,)).float(), torch.randint(2, (50,)), torch.randperm(50)
    for metric in (metrics.auc_roc, metrics.auc_pr):
        assert metric(scores[order], targets[order]).item() == pytest.approx(metric(scores, targets).item(), abs=1e-12)


@pytest.mark.parametrize(
    ("scores", "targets", "words"),
    [
        (torch.rand(3), torch.ones(3), "both kinds, but all are 1.*collect"),
        (torch.rand(3), torch.zeros(3), "all are 0.*collect"),
        (torch.rand(3, 2), torch.ones(3), r"p\.probs\[:, 1\]"),
        (torch.rand(2), torch.tensor([1, 2]), "0 and 1, but got 2"),
        (torch.tensor([torch.nan, 1.0]), torch.tensor([0, 1]), "NaN"),
        (torch.rand(0), torch.rand(0), "at least one example"),
    ],
)
def test_wrong_arguments(scores, targets, words):
    with pytest.raises(ValueError, match=words):
        metrics.auc_roc(scores, targets)


def test_precision_of_ones_alone_is_one():
    assert metrics.auc_pr(torch.rand(3), torch.ones(3)).item() == 1
    with pytest.raises(ValueError, match="at least one target 1"):
        metrics.auc_pr(torch.rand(3), torch.zeros(3))
