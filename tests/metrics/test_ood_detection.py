import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from slimbayes import Bernoulli, Categorical, Gaussian, Prediction, metrics


@pytest.mark.parametrize("decimals", [1, 8])
def test_detection_agrees_with_scikit_learn(decimals):
    inside = torch.randn(200, dtype=torch.float64).round(decimals=decimals)
    outside = (torch.randn(90, dtype=torch.float64) + 1).round(decimals=decimals)
    scores, targets = torch.cat([inside, outside]), torch.tensor([0] * 200 + [1] * 90)
    found = metrics.ood_scores(inside, outside)
    assert found.auroc.item() == pytest.approx(roc_auc_score(targets, scores), abs=1e-12)
    assert found.aupr.item() == pytest.approx(average_precision_score(targets, scores), abs=1e-12)
    false, true, _ = roc_curve(targets, scores, drop_intermediate=False)
    assert found.fpr95.item() == pytest.approx(false[true >= 0.95].min(), abs=1e-12)


def test_fpr95_at_exactly_95_per_cent():
    outside = torch.arange(20.0)  # 19 of 20 score at least 1
    inside = torch.tensor([0.0, 0.5, 1.0, 1.5])
    assert metrics.ood_scores(inside, outside).fpr95.item() == 0.5  # ties with the threshold are called out


def test_all_tied_and_fully_apart():
    tied = metrics.ood_scores(torch.zeros(3), torch.zeros(1))
    assert [value.item() for value in tied] == [0.5, 0.25, 1.0]
    apart = metrics.ood_scores(torch.zeros(3), torch.ones(5))
    assert [value.item() for value in apart] == [1.0, 1.0, 0.0]


def test_scores_of_a_prediction():
    logits = torch.randn(3, 7, 4)
    p, f = Prediction(logits), logits.double().numpy()
    probs = np.exp(f - logsumexp(f, 2, keepdims=True)).mean(0)
    np.testing.assert_allclose(metrics.max_probability_score(p), 1 - probs.max(1), atol=1e-12)
    np.testing.assert_allclose(metrics.entropy_score(p), -(probs * np.log(probs)).sum(1), atol=1e-12)
    torch.testing.assert_close(metrics.mutual_information_score(p).float(), p.mutual_information, rtol=0, atol=1e-6)
    np.testing.assert_allclose(metrics.energy_score(p), -logsumexp(f, 2).mean(0), atol=1e-12)
    by_channel = Prediction(logits.transpose(1, 2).unsqueeze(1), Categorical(class_dim=2))
    torch.testing.assert_close(metrics.energy_score(by_channel)[0], metrics.energy_score(p))


@pytest.mark.parametrize("name", metrics.OOD_MEASURES)
def test_larger_means_more_out(name):
    sure, unsure = torch.tensor([9.0, 0.0]), torch.zeros(2)
    draws = torch.stack([torch.stack([sure, unsure]), torch.stack([sure, unsure])])
    if name == "mutual_information":
        draws[0, 1], draws[1, 1] = sure, sure.flip(0)
    inside, outside = metrics.OOD_MEASURES[name](Prediction(draws, members=2)).tolist()
    assert outside > inside


def test_confidences_that_round_to_one_are_told_apart():
    score = metrics.max_probability_score(Prediction(torch.tensor([[[60.0, 0.0], [70.0, 0.0]]])))
    assert score.tolist() == pytest.approx([np.exp(-60), np.exp(-70)], rel=1e-9)


def test_energy_of_one_logit_is_that_of_two_opposite_ones():
    logits = torch.randn(3, 5, 1)
    two = torch.cat([-logits, logits], 2) / 2
    expected = metrics.energy_score(Prediction(two))
    torch.testing.assert_close(metrics.energy_score(Prediction(logits, Bernoulli())), expected)
    torch.testing.assert_close(metrics.energy_score(Prediction(logits[..., 0], Bernoulli())), expected)


@pytest.mark.parametrize("name", metrics.OOD_MEASURES)
def test_huge_logits(name):
    score = metrics.OOD_MEASURES[name](Prediction(torch.tensor([[[1e30, -1e30, 0.0]]])))
    assert score.isfinite().all()


def test_what_cannot_be_scored():
    with pytest.raises(ValueError, match="gaussian likelihood has no class probabilities"):
        metrics.energy_score(Prediction(torch.zeros(1, 2), Gaussian()))
    with pytest.raises(ValueError, match="NaN"):
        metrics.entropy_score(Prediction(torch.full((1, 2, 3), torch.nan)))
    with pytest.raises(ValueError, match="`out_scores`.*at least one"):
        metrics.ood_scores(torch.zeros(3), torch.zeros(0))
