import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, top_k_accuracy_score

from slimbayes import Prediction, metrics


@pytest.fixture
def case():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(300, 5, generator=generator, dtype=torch.float64) * 3
    return logits.softmax(1), torch.randint(5, (300,), generator=generator)


def test_scores_agree_with_scikit_learn(case):
    probs, targets = case
    assert metrics.accuracy(probs, targets).item() == pytest.approx(accuracy_score(targets, probs.argmax(1)))
    expected = log_loss(targets, probs.numpy(), labels=list(range(5)))
    assert metrics.negative_log_likelihood(probs.log(), targets).item() == pytest.approx(expected, abs=1e-9)
    for k in range(1, 5):
        expected = top_k_accuracy_score(targets, probs.numpy(), k=k, labels=list(range(5)))
        assert metrics.top_k_accuracy(probs, targets, k=k).item() == pytest.approx(expected)


def test_golden_brier(golden):
    probs = torch.tensor(golden["calibration/logits"], dtype=torch.float64).softmax(1)
    targets = torch.tensor(golden["calibration/labels"]).long()
    # TensorFlow Probability's Brier score leaves out the constant sum of squared targets, 1.
    expected = golden["calibration/brier"].mean() + 1
    assert metrics.brier_score(probs, targets).item() == pytest.approx(expected, abs=1e-6)


def test_two_class_brier_is_twice_that_of_yes():
    yes, targets = torch.rand(50), torch.randint(2, (50,))
    found = metrics.brier_score(metrics.two_class(yes), targets).item()
    assert found == pytest.approx(2 * brier_score_loss(targets, yes), abs=1e-7)


def test_single_precision_is_added_up_in_double():
    probs = torch.tensor([0.1, 0.9]).expand(3_000_000, 2)
    log_probs, targets = probs.log(), torch.zeros(3_000_000)
    expected = -np.log(np.float64(np.float32(0.1)))
    assert metrics.negative_log_likelihood(log_probs, targets).item() == pytest.approx(expected, abs=1e-7)


def test_equally_probable_classes_come_in_their_order():
    probs, targets = torch.full((4, 4), 0.25), torch.arange(4)
    assert metrics.accuracy(probs, targets, reduction="none").tolist() == [1, 0, 0, 0]
    for k in range(1, 5):
        assert metrics.top_k_accuracy(probs, targets, k=k, reduction="none").tolist() == [1.0] * k + [0.0] * (4 - k)


def test_huge_logits_and_probabilities_of_zero():
    p = Prediction(torch.tensor([[[1e30, -1e30], [3e4, 0.0]]]))
    assert metrics.negative_log_likelihood(p.log_probs, torch.tensor([0, 0])).item() == 0
    assert metrics.negative_log_likelihood(p.log_probs[1:], torch.tensor([1])).item() == 3e4
    never = torch.tensor([[0.0, -torch.inf]])
    assert metrics.negative_log_likelihood(never, torch.tensor([1])).item() == torch.inf
    assert metrics.brier_score(never.exp(), torch.tensor([1])).item() == 2
    one_class = torch.ones(3, 1)
    assert metrics.accuracy(one_class, torch.zeros(3)).item() == 1


def test_half_precision_may_exceed_one_by_its_rounding():
    probs = torch.tensor([[1.0078, 0.0]], dtype=torch.bfloat16)
    assert metrics.brier_score(probs, torch.tensor([0])).item() == pytest.approx(0, abs=1e-3)


def test_probabilities_are_not_taken_for_their_logarithms():
    with pytest.raises(ValueError, match=r"`log_probs`.*got 0\.75.*p\.log_probs"):
        metrics.negative_log_likelihood(torch.tensor([[0.25, 0.75]]), torch.tensor([0]))
    with pytest.raises(ValueError, match=r"`probs`.*got -2.*softmax"):
        metrics.brier_score(torch.tensor([[1.5, -2.0]]), torch.tensor([0]))


@pytest.mark.parametrize(
    ("probs", "targets", "words"),
    [
        (torch.full((2, 3), 1 / 3), torch.tensor([0, 3]), "got 3"),
        (torch.full((2, 3), 1 / 3), torch.tensor([0.0, 0.5]), r"classes from 0 to 2, but got 0\.5"),
        (torch.tensor([[np.nan, 1.0]]), torch.tensor([0]), "NaN"),
        (torch.full((2, 3), 1 / 3), torch.tensor([0.0, np.nan]), "`targets`.*NaN"),
        (torch.full((2, 3), 1 / 3), torch.tensor([0]), "targets"),
        (torch.rand(2), torch.tensor([0, 1]), r"two_class\(p\.probs\)"),
        (torch.rand(0, 2), torch.zeros(0), "at least one example"),
    ],
)
@pytest.mark.parametrize(
    "metric", ["accuracy", "top_k_accuracy", "brier_score", "expected_calibration_error", "aurc", "reliability_curve"]
)
def test_wrong_arguments(metric, probs, targets, words):
    options = {"k": 1} if metric == "top_k_accuracy" else {}
    with pytest.raises(ValueError, match=words):
        getattr(metrics, metric)(probs, targets, **options)


def test_wrong_options():
    with pytest.raises(ValueError, match="`k` to be at most the 2 classes, but got 5"):
        metrics.top_k_accuracy(torch.eye(2), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="reduction.*'sum'"):
        metrics.accuracy(torch.eye(2), torch.tensor([0, 1]), reduction="sum")
    with pytest.raises(ValueError, match=r"\(batch,\) or \(batch, 1\)"):
        metrics.two_class(torch.rand(3, 2))
    with pytest.raises(ValueError, match="`confidence` and `right`"):
        metrics.from_confidence(torch.rand(3), torch.ones(2))


SIGMOIDS = torch.tensor([[0.9, 0.8, 0.1]])


@pytest.mark.parametrize("metric", ["brier_score", "classwise_calibration_error", "expected_calibration_error", "aurc"])
def test_probabilities_of_several_labels_are_refused(metric):
    with pytest.raises(ValueError, match=r"`probs`.*sum of 1\.8.*two_class"):
        getattr(metrics, metric)(SIGMOIDS, torch.tensor([0]))


@pytest.mark.parametrize("metric", ["brier_score", "classwise_calibration_error"])
def test_scores_of_all_classes_need_all_of_them(metric):
    with pytest.raises(ValueError, match=r"`probs`.*sum of 0\.7"):
        getattr(metrics, metric)(torch.tensor([[0.7, 0.0]]), torch.tensor([0]))


def test_negative_logits_are_not_taken_for_log_probabilities():
    for logits in (torch.tensor([[-1.0, -3.0]]), SIGMOIDS.log()):
        with pytest.raises(ValueError, match=r"`log_probs`.*sum of .*p\.log_probs"):
            metrics.negative_log_likelihood(logits, torch.tensor([0]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_every_precision_is_scored_at_its_rounding(dtype):
    """Probabilities have the relative error eps / 2; logarithms, here down to -20, the absolute error 20 eps / 2."""
    logits, targets = 2 * torch.randn(40, 100, dtype=torch.float64), torch.randint(100, (40,))
    exact, rounded = logits.log_softmax(1), logits.log_softmax(1).to(dtype)
    error = torch.finfo(dtype).eps
    found = metrics.negative_log_likelihood(rounded, targets).item()
    assert found == pytest.approx(metrics.negative_log_likelihood(exact, targets).item(), abs=10 * error)
    found = metrics.brier_score(exact.exp().to(dtype), targets).item()
    assert found == pytest.approx(metrics.brier_score(exact.exp(), targets).item(), abs=2 * error)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.uint64, torch.float16, torch.bfloat16])
def test_targets_of_any_type(dtype):
    yes, targets = torch.tensor([0.1, 0.6, 0.7, 0.4]), torch.tensor([0, 1, 0, 1])
    probs = metrics.two_class(yes)
    assert metrics.accuracy(probs, targets.to(dtype)).item() == 0.5
    expected = log_loss(targets, yes.double())
    assert metrics.negative_log_likelihood(probs.log(), targets.to(dtype)).item() == pytest.approx(expected, abs=1e-7)
    assert metrics.auc_roc(yes, targets.to(dtype)).item() == 0.5


def test_two_classes_are_made_of_probabilities_alone():
    with pytest.raises(ValueError, match=r"`probs`.*got -0\.2.*sigmoid"):
        metrics.two_class(torch.tensor([0.3, -0.2]))  # logits, whose accuracy would be wrong
    rounded = metrics.two_class(torch.tensor([[1.0078]], dtype=torch.bfloat16))
    assert rounded.tolist() == [[0.0, 1.0]]
    with pytest.raises(ValueError, match="`right`.*NaN"):
        metrics.from_confidence(torch.tensor([0.5]), torch.tensor([torch.nan]))
