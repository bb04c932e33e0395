"""Temperature scaling: one number that makes a prediction as confident as it should be."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from slimbayes._checks import check_choice, check_number
from slimbayes.calibration._calibrator import Calibrator
from slimbayes.calibration.split import batch_axis, checked_targets, rows_of
from slimbayes.families import SCALE_EPSILON
from slimbayes.likelihoods import Bernoulli, Categorical, Gaussian
from slimbayes.prediction import Prediction

__all__ = ["TemperatureScaling", "minimise", "pooled", "scaled"]

CHUNK = 2**22  # numbers that a step of the search holds copies of


@dataclass
class TemperatureScaling(Calibrator):
    r"""Logits over a temperature, :math:`\text{softmax}(f / T)` (Guo et al. 2017, Eq. 9), for any prediction.

    T minimises the negative log-likelihood of the mixture on the calibration data, whichever logits it divides:
    draws that were calibrated one by one would be underconfident once averaged (Rahaman and Thiery 2021).
    A Gaussian prediction is stretched about its mean instead (``scaled``): T multiplies ``std``.

    Args:
        per: For classes: which logits T divides. ``"draw"``: those of each draw, before averaging. The draws stay,
            and so do mutual information, disagreement and all else that is made of them. ``"mixture"``: the
            averaged log-probabilities. The most probable class never changes, but the result is one draw.
        bounds: Where T is looked for. It ends there, with a warning, if sharper or softer is always better.

    Attributes:
        temperature: T; above 1 if the model was overconfident.
        likelihood: Name of the likelihood that it was fitted for.

    Example:
        >>> import torch
        >>> logits = torch.randn(1, 2000, 3)
        >>> targets = torch.distributions.Categorical(logits=logits[0]).sample()
        >>> overconfident = Prediction(4 * logits)
        >>> scaling = TemperatureScaling().fit(overconfident, targets)
        >>> 3.5 < scaling.temperature < 4.5
        True
        >>> scaling.apply(Prediction(torch.tensor([[[8.0, 0.0, 0.0]]]))).confidence < 0.9
        tensor([True])
    """

    per: str = "draw"
    bounds: tuple[float, float] = (0.01, 100.0)
    temperature: float = field(default=1.0, init=False)
    likelihood: str = field(default="", init=False)

    def __post_init__(self) -> None:
        check_choice("per", self.per, ("draw", "mixture"))
        low, high = self.bounds
        check_number("bounds[0]", low, 0.0, 1.0, "The bounds must have 1, no change, between them.")
        check_number("bounds[1]", high, 1.0, remedy="The bounds must have 1, no change, between them.")
        self.bounds = (float(low), float(high))

    def fit(self, prediction: Prediction, targets: Tensor) -> Self:
        """Find T.

        Args:
            prediction: Of calibration data, neither trained nor tested on.
            targets: As for ``prediction.log_likelihood``, ``(batch, *)``.
        """
        targets = checked_targets(prediction, targets)
        _check_some_count(prediction, targets)
        source = self._source(replace(prediction, draws=prediction.outputs.detach().double()))
        examples = targets.shape[batch_axis(prediction)]
        step = max(1, CHUNK * examples // source.outputs.numel())
        chunks = [rows_of(source, targets, slice(begin, begin + step)) for begin in range(0, examples, step)]

        def nll(log_temperature: float) -> float:
            scores = (scaled(chunk, math.exp(log_temperature)).log_likelihood(part) for chunk, part in chunks)
            return -sum(score.sum().item() for score in scores) / examples

        if not math.isfinite(unscaled := nll(0.0)):
            raise ValueError(
                "A calibration target has probability zero, which no temperature changes. Check the model's outputs."
            )
        low, high = map(math.log, self.bounds)
        best = minimise(nll, low, high)
        if unscaled - nll(best) < 1e-12:
            best = 0.0  # nothing to gain: classes that are all certain, or all equally likely
        elif min(best - low, high - best) < 1e-6:
            _warn_of_bound(math.exp(best), "sharper" if best < 0 else "softer", examples)
        self.temperature, self.likelihood = math.exp(best), _kind(prediction)
        self._fitted(prediction, examples)
        return self

    def apply(self, prediction: Prediction) -> Prediction:
        """Return the calibrated prediction; see ``per`` for its draws."""
        self._check_ready(prediction)
        if _kind(prediction) != self.likelihood:
            raise ValueError(
                f"Expected argument `prediction` to have the {self.likelihood} likelihood, for which T was fitted, "
                f"but got {_kind(prediction)}. Fit another TemperatureScaling."
            )
        return scaled(self._source(prediction), self.temperature)

    def _source(self, prediction: Prediction) -> Prediction:
        """Return the prediction whose outputs T acts on."""
        if isinstance(prediction.likelihood, Gaussian):
            return prediction
        if not isinstance(prediction.likelihood, (Categorical, Bernoulli, type(None))):
            raise ValueError(
                f"Expected argument `prediction` to be of classes by their logits, or Gaussian, but its likelihood is "
                f"{prediction.likelihood.name}, which a temperature does not fit."
            )
        if self.per == "mixture":
            return pooled(prediction)
        _ = replace(prediction, draws=prediction.outputs[:1]).draw_log_probs  # raises if the outputs are no logits
        return prediction


def _check_some_count(prediction: Prediction, targets: Tensor) -> None:
    reading = prediction.likelihood or Categorical()
    if isinstance(reading, Categorical) and (targets == reading.ignore_index).all():
        raise ValueError(
            f"Expected argument `targets` to hold a class at least, but all are {reading.ignore_index}, which does not "
            "count. Calibrate with other examples."
        )


def _kind(prediction: Prediction) -> str:
    return "categorical" if prediction.likelihood is None else prediction.likelihood.name


def _warn_of_bound(temperature: float, direction: str, examples: int) -> None:
    warnings.warn(
        f"The temperature ended at its bound, {temperature:g}: on these {examples} calibration examples a {direction} "
        "prediction is always better. Use more calibration data; the same result again says that the model is "
        + ("always right." if direction == "sharper" else "of no use on them."),
        stacklevel=3,
    )


def scaled(prediction: Prediction, temperature: float) -> Prediction:
    r"""Divide each draw's logits by T; stretch a Gaussian mixture by T about its mean.

    Stretched, :math:`p_T(y) = \frac1T\, p(m + (y - m) / T)` with :math:`m` the mixture's mean, which stays; the
    predictive standard deviation and each of its two parts are T times as large.

    Example:
        >>> p = Prediction(torch.tensor([[[1.0]], [[3.0]]]), Gaussian(noise=0.5))
        >>> scaled(p, 2.0).mean, scaled(p, 2.0).std / p.std
        (tensor([[2.]]), tensor([[2.]]))
    """
    reading = prediction.likelihood
    if not isinstance(reading, Gaussian):
        return replace(prediction, draws=prediction.outputs / temperature)
    mean, std = prediction.moments
    centre = mean.mean(0, keepdim=True)
    mean, std = centre + temperature * (mean - centre), temperature * std
    if reading.noise == "predicted" or reading.outputs is not None:
        return replace(prediction, draws=torch.cat([mean, _rho(std)], -1), likelihood=Gaussian("predicted"))
    return replace(prediction, draws=mean, likelihood=Gaussian(noise=std.flatten()[0].item()))


def _rho(std: Tensor) -> Tensor:
    softplus = (std - SCALE_EPSILON).clamp_min(torch.finfo(std.dtype).tiny)
    return softplus + (-torch.expm1(-softplus)).log()


def pooled(prediction: Prediction) -> Prediction:
    """Return one draw whose class probabilities are those of the mixture.

    Example:
        >>> p = Prediction(torch.randn(4, 5, 3), members=4)
        >>> torch.allclose(pooled(p).probs, p.probs), len(pooled(p).draws)
        (True, 1)
    """
    log_probs = prediction.class_log_probs
    if isinstance(prediction.likelihood, Bernoulli):
        no, yes = log_probs.unbind(-1)
        logits = (yes - no).reshape(1, *prediction.outputs.shape[1:])
    else:
        reading = prediction.likelihood
        axis = reading.class_axis(prediction.outputs) if isinstance(reading, Categorical) else -1
        logits = log_probs.unsqueeze(0).movedim(-1, axis)
    return replace(prediction, draws=logits, members=1)


def minimise(f: Callable[[float], float], low: float, high: float, points: int = 25, tolerance: float = 1e-8) -> float:
    """Return where ``f`` is lowest: the best point of a grid, then golden-section search between its neighbours.

    The grid guards against a second valley, and needs no gradient; on a plateau the lower end is taken.

    Example:
        >>> round(minimise(lambda x: (x - 0.3) ** 2, -1.0, 1.0), 6)
        0.3
    """
    grid = torch.linspace(low, high, points, dtype=torch.float64).tolist()
    best = min(range(points), key=[f(x) for x in grid].__getitem__)
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, points - 1)]
    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = f(left), f(right)
    while high - low > tolerance:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = f(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = f(right)
    return (low + high) / 2
