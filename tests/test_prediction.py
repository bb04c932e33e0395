"""What a prediction says, against loops in double precision and SciPy."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats
from torch import nn

import slimbayes as sb
from cases import METHODS, build

MEMBERS, SAMPLES, BATCH, CLASSES = 3, 2, 4, 5


def logits(*shape: int, scale: float = 2.0) -> torch.Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(3))


def double_probs(outputs: torch.Tensor) -> np.ndarray:
    return special.softmax(outputs.numpy().astype(np.float64), -1)


def close(found: torch.Tensor, expected: np.ndarray, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)


@pytest.fixture(params=["one label", "sequence"])
def classes(request) -> sb.Prediction:
    shape = (
        (MEMBERS * SAMPLES, BATCH, CLASSES) if request.param == "one label" else (MEMBERS * SAMPLES, BATCH, 3, CLASSES)
    )
    return sb.Prediction(logits(*shape), sb.Categorical(), MEMBERS)


def test_mixture_probabilities(classes: sb.Prediction) -> None:
    mixed = sum(double_probs(classes.draws)) / (MEMBERS * SAMPLES)
    close(classes.probs, mixed)
    close(classes.log_probs, np.log(mixed))
    close(classes.confidence, mixed.max(-1))
    assert np.array_equal(classes.label.numpy(), mixed.argmax(-1))


def test_entropy_splits_into_two_kinds_of_uncertainty(classes: sb.Prediction) -> None:
    probs = double_probs(classes.draws)
    total, data = stats.entropy(probs.mean(0), axis=-1), stats.entropy(probs, axis=-1).mean(0)
    close(classes.entropy, total)
    close(classes.expected_entropy, data)
    close(classes.mutual_information, total - data)
    assert (classes.mutual_information >= 0).all()


def test_mutual_information_is_zero_where_draws_agree_and_log_2_where_they_do_not() -> None:
    same = sb.Prediction(logits(1, 50, CLASSES).expand(7, -1, -1))
    assert (same.mutual_information >= 0).all()
    close(same.mutual_information, np.zeros(50), 1e-6)
    opposed = sb.Prediction(torch.tensor([[[50.0, -50.0]], [[-50.0, 50.0]]]))
    close(opposed.mutual_information, np.array([math.log(2)]), 1e-6)


def test_member_probs_average_over_samples_only(classes: sb.Prediction) -> None:
    probs = double_probs(classes.draws)
    for k in range(MEMBERS):
        close(classes.member_probs[k], (probs[2 * k] + probs[2 * k + 1]) / 2)


@pytest.mark.parametrize("members", [MEMBERS, 1], ids=["members", "draws of one member"])
def test_disagreement_is_the_share_of_differing_pairs(classes: sb.Prediction, members: int) -> None:
    prediction = sb.Prediction(classes.draws, classes.likelihood, members)
    voters = prediction.member_probs if members > 1 else prediction.draw_log_probs
    labels = voters.argmax(-1).numpy()
    pairs = list(itertools.combinations(range(len(labels)), 2))
    expected = sum((labels[i] != labels[j]).astype(float) for i, j in pairs) / len(pairs)
    close(prediction.disagreement, expected, 1e-7)


def test_one_draw_agrees_with_itself() -> None:
    assert sb.Prediction(logits(1, BATCH, CLASSES)).disagreement.tolist() == [0.0] * BATCH


@pytest.mark.parametrize("scale", [1e4, 1e30])
def test_extreme_logits_stay_finite(scale: float) -> None:
    outputs = torch.tensor([[[1.0, -1.0, 0.0]], [[-1.0, 1.0, 0.0]]]) * scale
    prediction = sb.Prediction(outputs, members=2)
    for name in ("probs", "log_probs", "confidence", "entropy", "expected_entropy", "mutual_information"):
        assert getattr(prediction, name).isfinite().all(), name
    close(prediction.probs, np.array([[0.5, 0.5, 0.0]]))
    close(prediction.entropy, np.array([math.log(2)]))
    close(prediction.mutual_information, np.array([math.log(2)]))
    assert prediction.disagreement.tolist() == [1.0]
    # Class 2 has probability e^-scale: zero as a number, but not as a logarithm.
    assert prediction.log_probs[0, 2].item() == pytest.approx(-scale, rel=1e-6)


def test_impossible_classes_have_no_entropy() -> None:
    prediction = sb.Prediction(torch.tensor([[[0.0, 0.0, -math.inf]]]))
    close(prediction.entropy, np.array([math.log(2)]))


def test_half_precision_outputs_are_read_in_single_precision() -> None:
    outputs = logits(6, BATCH, CLASSES).bfloat16()
    prediction = sb.Prediction(outputs, members=3)
    probs = double_probs(outputs.float())
    close(prediction.mutual_information, stats.entropy(probs.mean(0), axis=-1) - stats.entropy(probs, axis=-1).mean(0))


@pytest.mark.parametrize("shape", [(6, BATCH, 1), (6, BATCH), (6, BATCH, 3)], ids=["one", "squeezed", "multi-label"])
def test_bernoulli_reads_yes(shape: tuple) -> None:
    outputs = logits(*shape)
    prediction = sb.Prediction(outputs, sb.Bernoulli(), 3)
    each = special.expit(outputs.numpy().astype(np.float64)).reshape(6, BATCH, *([3] if shape[-1] == 3 else []))
    yes = each.mean(0)
    close(prediction.probs, yes)
    close(prediction.log_probs, np.log(yes))
    assert np.array_equal(prediction.label.numpy(), (yes > 0.5).astype(int))
    close(prediction.confidence, np.maximum(yes, 1 - yes))
    total = stats.entropy(np.stack([yes, 1 - yes]))
    data = stats.entropy(np.stack([each, 1 - each])).mean(0)
    close(prediction.entropy, total)
    close(prediction.mutual_information, total - data)


# ---------------------------------------------------------------------- regression


@pytest.fixture(params=[0.5, "learned", "predicted"])
def regression(request) -> tuple[sb.Prediction, np.ndarray, np.ndarray]:
    """A prediction of two targets, and the mean and std of each draw."""
    outputs = logits(6, BATCH, 4 if request.param == "predicted" else 2).double()
    likelihood = sb.Gaussian(request.param, initial=0.25).double()
    if request.param == "predicted":
        mean, std = outputs[..., :2].numpy(), np.logaddexp(0, outputs[..., 2:].numpy()) + 1e-7
    else:
        mean = outputs.numpy()
        std = np.full_like(mean, 0.5 if request.param == 0.5 else np.logaddexp(0, likelihood.rho.item()) + 1e-7)
    return sb.Prediction(outputs, likelihood, 3), mean, std


def test_law_of_total_variance(regression) -> None:
    prediction, mean, std = regression
    close(prediction.mean, mean.mean(0), 1e-10)
    close(prediction.aleatoric_std, np.sqrt((std**2).mean(0)), 1e-10)
    close(prediction.epistemic_std, mean.std(0), 1e-10)
    second_moment = (std**2 + mean**2).mean(0)
    close(prediction.std, np.sqrt(second_moment - mean.mean(0) ** 2), 1e-10)


@pytest.mark.parametrize("q", [1e-9, 0.05, 0.5, 0.9, 0.999])
def test_quantile_is_the_root_of_the_mixtures_distribution_function(regression, q: float) -> None:
    prediction, mean, std = regression
    found = prediction.quantile(q).numpy()
    for position in np.ndindex(found.shape):
        m, s = mean[(slice(None), *position)], std[(slice(None), *position)]
        root = optimize.brentq(lambda x, m=m, s=s: stats.norm.cdf(x, m, s).mean() - q, -100, 100, xtol=1e-13)
        assert found[position] == pytest.approx(root, abs=1e-6 if q == 1e-9 else 1e-9)


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_interval_holds_its_level(regression, level: float) -> None:
    prediction, mean, std = regression
    low, high = (bound.numpy() for bound in prediction.interval(level))
    inside = (stats.norm.cdf(high, mean, std) - stats.norm.cdf(low, mean, std)).mean(0)
    np.testing.assert_allclose(inside, level, atol=1e-9)
    np.testing.assert_allclose(stats.norm.cdf(low, mean, std).mean(0), (1 - level) / 2, atol=1e-9)


def test_quantiles_in_single_precision() -> None:
    outputs = logits(6, BATCH, 1)
    low, high = sb.Prediction(outputs, sb.Gaussian(0.5), 3).interval(0.95)
    mean = outputs.numpy().astype(np.float64)
    close(torch.from_numpy((stats.norm.cdf(high, mean, 0.5) - stats.norm.cdf(low, mean, 0.5)).mean(0)), 0.95, 1e-5)


def test_without_a_likelihood_values_are_bare() -> None:
    outputs = logits(20, BATCH, 2)
    prediction = sb.Prediction(outputs)
    close(prediction.mean, outputs.numpy().mean(0))
    close(prediction.std, outputs.numpy().std(0))
    assert not prediction.aleatoric_std.any()
    close(prediction.quantile(0.3), np.quantile(outputs.numpy(), 0.3, axis=0))


# ---------------------------------------------------------------------- scores and readings


def test_log_likelihood_is_the_mixtures() -> None:
    outputs, y = logits(6, BATCH, CLASSES), torch.tensor([0, 1, 2, 3])
    mixed = double_probs(outputs).mean(0)
    close(sb.Prediction(outputs, members=3).log_likelihood(y), np.log(mixed[np.arange(BATCH), y]))

    targets = logits(BATCH)
    density = stats.norm.pdf(targets.numpy(), outputs[..., 0].numpy(), 0.5).mean(0)
    prediction = sb.Prediction(outputs[..., :1], sb.Gaussian(0.5), 3)
    close(prediction.log_likelihood(targets), np.log(density))
    assert not sb.Prediction(outputs[..., :1], sb.Gaussian(), 3).log_likelihood(targets).requires_grad


def test_log_likelihood_of_sequence_first_outputs_is_of_whole_sequences() -> None:
    outputs, y = logits(6, 3, BATCH, CLASSES), torch.randint(CLASSES, (3, BATCH))
    probs = double_probs(outputs)
    picked = np.take_along_axis(probs, y.numpy()[None, ..., None], -1)[..., 0]
    prediction = sb.Prediction(outputs, sb.Categorical(), 3, batch_dim=1)
    close(prediction.log_likelihood(y), np.log(picked.prod(1).mean(0)))


@pytest.mark.parametrize("nest", [lambda x: {"logits": x}, lambda x: type("Output", (), {"logits": x})()])
def test_logits_of_nested_outputs_are_read(nest) -> None:
    outputs = logits(6, BATCH, CLASSES)
    close(sb.Prediction(nest(outputs)).probs, double_probs(outputs).mean(0))


REGRESSION_FIGURES = ("mean", "std", "aleatoric_std", "epistemic_std")
CLASS_FIGURES = ("probs", "label", "confidence", "entropy", "mutual_information", "disagreement", "member_probs")


@pytest.mark.parametrize("name", CLASS_FIGURES)
def test_a_regression_has_no_classes(name: str) -> None:
    with pytest.raises(ValueError, match=r"gaussian likelihood has no class probabilities.*mean"):
        getattr(sb.Prediction(logits(6, BATCH, 2), sb.Gaussian()), name)


@pytest.mark.parametrize("name", REGRESSION_FIGURES)
@pytest.mark.parametrize("likelihood", [sb.Categorical(), sb.Bernoulli()], ids=["categorical", "bernoulli"])
def test_a_classification_has_no_mean(name: str, likelihood) -> None:
    with pytest.raises(ValueError, match=f"{likelihood.name} likelihood has no mean or std.*probs"):
        getattr(sb.Prediction(logits(6, BATCH, 2), likelihood), name)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: sb.Prediction(logits(6, BATCH, 1)).probs, ["(6, 4, 1)", "bernoulli", "gaussian"]),
        (lambda: sb.Prediction(logits(6, BATCH)).label, ["(6, 4)", "bernoulli", "gaussian"]),
        (lambda: sb.Prediction((logits(6, BATCH, 2),)).probs, ["tuple", "logits", "Prediction("]),
        (lambda: sb.Prediction(logits(6, BATCH, 1)).interval(90), ["`level`", "90", "0.9"]),
        (lambda: sb.Prediction(logits(6, BATCH, 1)).quantile(1.0), ["`q`", "1.0"]),
    ],
)
def test_what_cannot_be_read_is_named(ask, words: list[str]) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        ask()
    for word in words:
        assert word in str(error.value)


def test_the_models_likelihood_reads_its_predictions() -> None:
    model, x = sb.rank1(nn.Linear(2, 1), members=2), torch.randn(BATCH, 2)
    sb.ELBO(model, 10, "bernoulli")
    outputs = model.predict(x, samples=0)
    close(outputs.probs, special.expit(outputs.draws.numpy()).mean(0)[:, 0])
    assert model.predict(x, likelihood=sb.Gaussian(0.5)).aleatoric_std.unique().tolist() == [0.5]


@pytest.mark.parametrize("shape", [(2, BATCH, 3, CLASSES), (2, BATCH, CLASSES, 8, 8)])
def test_classes_of_several_axes_are_not_guessed_at(shape: tuple) -> None:
    with pytest.raises(ValueError, match=r"which axis.*likelihood=".replace("which", "Which")):
        sb.Prediction(logits(*shape)).probs  # noqa: B018


@pytest.mark.parametrize("batch_dim", [0, 1])
def test_some_of_the_examples(batch_dim: int) -> None:
    outputs = logits(6, 3, BATCH, CLASSES) if batch_dim else logits(6, BATCH, 3, CLASSES)
    p = sb.Prediction(outputs, sb.Categorical(), 3, batch_dim)
    assert len(p) == BATCH
    for part, numbers in ((p[1:3], [1, 2]), (p[[3, 0]], [3, 0]), (p[torch.tensor([True, False, True, False])], [0, 2])):
        assert len(part) == 2
        assert (part.members, part.likelihood, part.batch_dim) == (3, p.likelihood, batch_dim)
        torch.testing.assert_close(part.probs, p.probs.index_select(batch_dim, torch.tensor(numbers)))
    with pytest.raises(TypeError, match=r"p\[:1\]"):
        p[0]


def test_a_prediction_moves_to_a_device() -> None:
    p = sb.Prediction({"logits": logits(6, BATCH, 1)}, sb.Gaussian(), 3).to("meta")
    assert p.outputs.is_meta
    assert p.std.is_meta


@pytest.mark.parametrize("method", METHODS)
def test_eight_draws_are_the_default_wherever_draws_differ(method):
    model, _ = build(method, "mlp_3d")
    assert model.default_samples == (math.ceil(8 / model.members) if METHODS[method].random else 1)
    assert model.is_point != METHODS[method].random
