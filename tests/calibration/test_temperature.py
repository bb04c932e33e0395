"""Temperature scaling, against SciPy and closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats

import slimbayes as sb
from slimbayes.calibration import temperature as module
from slimbayes.calibration.temperature import minimise


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sampled(logits: torch.Tensor) -> torch.Tensor:
    return torch.distributions.Categorical(logits=logits).sample()


def other(p: sb.Prediction) -> sb.Prediction:
    """The same numbers in other memory: what a test compares, not a use of calibration data that is right."""
    return sb.Prediction(p.outputs.clone(), p.likelihood, p.members, p.batch_dim)


@pytest.mark.parametrize("truth", [0.1, 0.5, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("per", ["draw", "mixture"])
def test_the_temperature_of_the_data_is_found(truth, per):
    logits = 1.5 * random(4000, 4)
    scaling = sb.TemperatureScaling(per).fit(sb.Prediction(truth * logits[None]), sampled(logits))
    probs = logits.softmax(1)
    information = ((probs * logits.square()).sum(1) - (probs * logits).sum(1).square()).sum().item()
    assert abs(math.log(scaling.temperature / truth)) < 4 / math.sqrt(information)  # four standard errors


def classes_nll(outputs: np.ndarray, targets: np.ndarray, per: str, temperature: float) -> float:
    if per == "draw":
        mixed = special.softmax(outputs / temperature, -1).mean(0)
    else:
        mixed = special.softmax(np.log(special.softmax(outputs, -1).mean(0)) / temperature, -1)
    return -np.log(mixed[np.arange(len(targets)), targets]).mean()


@pytest.mark.parametrize("per", ["draw", "mixture"])
@pytest.mark.parametrize("draws", [1, 5])
@pytest.mark.parametrize("kind", ["categorical", "bernoulli", "bernoulli of one output"])
def test_the_optimum_is_that_of_scipy(per, draws, kind):
    classes = 4 if kind == "categorical" else 2
    shared = 2 * random(300, classes, seed=1)
    outputs, targets = 3 * shared + 2 * random(draws, 300, classes, seed=2), sampled(shared)
    if kind == "categorical":
        p = sb.Prediction(outputs, sb.Categorical(), draws)
    else:
        logit = outputs[..., 1] - outputs[..., 0]
        p = sb.Prediction(logit if kind == "bernoulli" else logit[..., None], sb.Bernoulli(), draws)
    scaling = sb.TemperatureScaling(per).fit(p, targets)

    def nll(u: float) -> float:
        return classes_nll(outputs.numpy(), targets.numpy(), per, math.exp(u))

    best = optimize.minimize_scalar(nll, bounds=(-3, 3), method="bounded", options={"xatol": 1e-9})
    found = math.log(scaling.temperature)
    assert found == pytest.approx(best.x, abs=1e-5)
    assert abs(nll(found + 1e-4) - nll(found - 1e-4)) / 2e-4 < 1e-6  # the gradient
    calibrated = scaling.apply(other(p))
    assert -calibrated.log_likelihood(targets).mean().item() == pytest.approx(best.fun, abs=1e-9)
    assert calibrated.probs.shape == p.probs.shape
    assert len(calibrated.draws) == calibrated.members == (draws if per == "draw" else 1)


@pytest.mark.parametrize(("per", "draws"), [("draw", 1), ("mixture", 1), ("mixture", 6)])
def test_labels_stay(per, draws):
    outputs = 5 * random(draws, 400, 5)
    calibration, test = sb.calibration_split(sb.Prediction(outputs, members=draws), sampled(outputs[0] / 5))
    assert torch.equal(sb.TemperatureScaling(per).fit(*calibration).apply(test[0]).label, test[0].label)


def test_calibration_makes_an_overconfident_model_honest():
    logits = random(4000, 3)
    calibration, test = sb.calibration_split(sb.Prediction(5 * logits[None]), sampled(logits))
    calibrated = sb.TemperatureScaling().fit(*calibration).apply(test[0])
    ece = sb.metrics.expected_calibration_error
    assert ece(test[0].probs, test[1]) > 0.2
    assert ece(calibrated.probs, test[1]) < 0.04  # 15 bins of 133: about 0.03 if it were exact


@pytest.mark.parametrize("per", ["draw", "mixture"])
def test_data_that_are_all_right_end_at_the_bound_with_a_warning(per):
    targets = torch.arange(30) % 3
    outputs = torch.nn.functional.one_hot(targets, 3).double().expand(2, -1, -1)
    with pytest.warns(UserWarning, match=r"ended at its bound, 0\.05: .* 30 calibration examples a sharper"):
        scaling = sb.TemperatureScaling(per, bounds=(0.05, 10)).fit(sb.Prediction(outputs), targets)
    assert scaling.temperature == pytest.approx(0.05, rel=1e-6)
    with pytest.warns(UserWarning, match="ended at its bound, 100: .* a softer .* of no use"):
        sb.TemperatureScaling(per).fit(sb.Prediction(outputs), (targets + 1) % 3)


@pytest.mark.parametrize("outputs", [torch.zeros(2, 30, 3), 1e6 * torch.eye(3).repeat(10, 1).expand(2, 30, 3)])
def test_no_change_where_there_is_nothing_to_gain(outputs):
    assert sb.TemperatureScaling().fit(sb.Prediction(outputs), torch.arange(30) % 3).temperature == 1


@pytest.mark.parametrize("per", ["draw", "mixture"])
def test_maps_sequences_and_nests_are_read_as_the_prediction_reads_them(per):
    outputs = 3 * random(20, 6, 5) + random(4, 20, 6, 5, seed=1)
    targets = sampled(outputs[0] / 2)
    targets[0, 2] = -100
    first = sb.Prediction(outputs, sb.Categorical(), 2)
    same = [
        sb.Prediction(outputs.movedim(-1, 2), sb.Categorical(class_dim=2), 2),
        sb.Prediction(outputs.transpose(1, 2), sb.Categorical(), 2, batch_dim=1),
        sb.Prediction(SimpleMapping(logits=outputs), sb.Categorical(), 2),
    ]
    scaling = sb.TemperatureScaling(per).fit(first, targets)
    expected = scaling.apply(other(first)).probs
    for p, y, moved in zip(same, [targets, targets.T, targets], [(), (0, 1), ()], strict=True):
        again = sb.TemperatureScaling(per).fit(p, y)
        assert again.temperature == pytest.approx(scaling.temperature, rel=1e-6)
        probs = again.apply(other(p)).probs
        torch.testing.assert_close(probs.movedim(*moved) if moved else probs, expected, rtol=1e-5, atol=1e-7)


class SimpleMapping(dict):
    """An output with a name, as Hugging Face models give it."""


def test_chunks_and_half_precision_change_nothing(monkeypatch):
    outputs = (3 * random(4, 103, 5)).half()
    targets = sampled(outputs[0].float())
    whole = sb.TemperatureScaling().fit(sb.Prediction(outputs.double()), targets).temperature
    monkeypatch.setattr(module, "CHUNK", 100)
    assert sb.TemperatureScaling().fit(sb.Prediction(outputs), targets).temperature == pytest.approx(whole, rel=1e-6)


# ---------------------------------------------------------------------- Gaussian


@pytest.mark.parametrize("noise", ["learned", "predicted", 0.3])
def test_one_gaussian_is_stretched_by_the_root_mean_square_of_its_residuals(noise):
    likelihood = sb.Gaussian(noise)
    outputs = random(1, 200, 2).float()
    p = sb.Prediction(outputs, likelihood)
    targets = p.mean + 2.5 * random(*p.mean.shape, seed=4).float()
    scaling = sb.TemperatureScaling().fit(p, targets)
    expected = ((targets - p.mean) / p.std).double().square().mean().sqrt().item()
    assert scaling.temperature == pytest.approx(expected, rel=1e-5)
    calibrated = scaling.apply(other(p))
    torch.testing.assert_close(calibrated.mean, p.mean)
    torch.testing.assert_close(calibrated.std, expected * p.std, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("noise", ["predicted", 0.3])
def test_a_gaussian_mixture_is_stretched_as_a_whole(noise):
    p = sb.Prediction(random(3, 150, 2), sb.Gaussian(noise), members=3)
    mean, std = (part.numpy() for part in p.moments)
    targets = p.mean + 2 * random(*p.mean.shape, seed=5)
    centre = mean.mean(0)

    def nll(u: float) -> float:
        stretched = centre + (targets.numpy() - centre) / math.exp(u)  # p_T(y) = p(m + (y - m) / T) / T
        logs = (stats.norm.logpdf(stretched, mean, std) - u).sum(-1)
        return -(special.logsumexp(logs, axis=0) - math.log(3)).mean()

    best = optimize.minimize_scalar(nll, bounds=(-3, 3), method="bounded", options={"xatol": 1e-9})
    scaling = sb.TemperatureScaling().fit(p, targets)
    assert math.log(scaling.temperature) == pytest.approx(best.x, abs=1e-5)
    calibrated = scaling.apply(other(p))
    assert -calibrated.log_likelihood(targets).mean().item() == pytest.approx(best.fun, abs=1e-6)
    for figure in ("std", "aleatoric_std", "epistemic_std"):
        torch.testing.assert_close(getattr(calibrated, figure), scaling.temperature * getattr(p, figure))


# ---------------------------------------------------------------------- search, misuse


def test_the_deeper_of_two_valleys_is_found():
    def f(x: float) -> float:
        return math.cos(3 * x) + 0.1 * x

    grid = np.linspace(-3, 3, 600_001)
    assert minimise(f, -3, 3) == pytest.approx(grid[np.argmin(np.cos(3 * grid) + 0.1 * grid)], abs=1e-5)


def test_the_ends_count():
    assert minimise(lambda x: x, 1, 2) == pytest.approx(1, abs=1e-7)
    assert minimise(lambda x: -x, 1, 2) == pytest.approx(2, abs=1e-7)


P, Y = sb.Prediction(torch.zeros(2, 10, 3)), torch.arange(10) % 3


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sb.TemperatureScaling(per="member"), "`per`.*'draw', 'mixture'"),
        (lambda: sb.TemperatureScaling(bounds=(2, 3)), r"`bounds\[0\]`.*between them"),
        (lambda: sb.TemperatureScaling(bounds=(0.1, 0.5)), r"`bounds\[1\]`"),
        (lambda: sb.TemperatureScaling().fit(sb.Prediction(torch.zeros(2, 10)), Y), "bernoulli"),
        (lambda: sb.TemperatureScaling("mixture").fit(sb.Prediction(torch.zeros(2, 10, 1)), Y), "bernoulli"),
        (lambda: sb.TemperatureScaling().fit(P, Y + 1), "`targets`.*got 3"),
        (lambda: sb.TemperatureScaling().fit(P, Y[:9]), r"each of the 10 examples.*\(9,\)"),
        (lambda: sb.TemperatureScaling().fit(sb.Prediction(torch.zeros(2, 0, 3)), Y[:0]), "an example at least"),
        (lambda: sb.TemperatureScaling().fit(sb.Prediction(torch.full((2, 10, 3), math.nan)), Y), "NaN"),
        (lambda: sb.TemperatureScaling().fit(P, torch.full_like(Y, -100)), "`targets`.*all are -100"),
        (
            lambda: sb.TemperatureScaling().fit(sb.Prediction(torch.tensor([[[-math.inf, 0.0]]])), torch.tensor([0])),
            "probability zero",
        ),
    ],
)
def test_misuse(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_another_likelihood_is_refused():
    scaling = sb.TemperatureScaling().fit(P, Y)
    with pytest.raises(ValueError, match="categorical likelihood.*got gaussian"):
        scaling.apply(sb.Prediction(torch.zeros(2, 10, 3), sb.Gaussian()))


def test_only_predictions():
    with pytest.raises(TypeError, match=r"`prediction`.*Tensor.*model\.predict"):
        sb.TemperatureScaling().fit(torch.zeros(2, 10, 3), Y)
