"""Temperature scaling: one number that makes a prediction as confident as it should be."""

import math
import warnings
from dataclasses import dataclass, field, replace
from typing import Self

from torch import Tensor

from slimbayes._checks import check_choice, check_number
from slimbayes.calibration.calibrator import Calibrator
from slimbayes.calibration.scaling import pooled, scaled
from slimbayes.calibration.search import minimise
from slimbayes.calibration.split import batch_axis, checked_targets, rows_of
from slimbayes.likelihoods import Categorical, Gaussian
from slimbayes.prediction import Prediction

__all__ = ["TemperatureScaling"]

CHUNK = 2**22  # numbers that a step of the search holds copies of


@dataclass
class TemperatureScaling(Calibrator):
    r"""Logits over a temperature, :math:`\text{softmax}(f / T)` (Guo et al. 2017, Eq. 9), for any prediction.

    T minimises the negative log-likelihood of the mixture on the calibration data, whichever logits it divides:
    draws that were calibrated one by one would be underconfident once averaged (Rahaman and Thiery 2021).
    A Gaussian prediction is stretched about its mean instead (``scaling.scaled``): T multiplies ``std``.

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
