"""Intervals that hold the target with a given probability."""

import math
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from slimbayes._checks import check_choice
from slimbayes.calibration._calibrator import Calibrator
from slimbayes.calibration._quantile import checked_level, conformal_quantile
from slimbayes.calibration.split import batch_axis, checked_targets
from slimbayes.prediction import Prediction

__all__ = ["ConformalRegressor"]


@dataclass
class ConformalRegressor(Calibrator):
    r"""Split conformal intervals: on average over data like the calibration data, ``level`` hold the target.

    The interval is :math:`m \pm \hat q\, s`, with :math:`m` the mixture's mean and :math:`\hat q` the
    ``conformal_quantile`` of the scores :math:`|y - m| / s`. Targets of several numbers get the score of the worst
    of them, so that all their intervals hold at once.

    Args:
        level: Wanted coverage.
        score: ``"normalised"``: :math:`s` is the predictive standard deviation (Lei et al. 2018), and
            intervals are wider where the model is less sure. ``"absolute"``: :math:`s = 1`, all are equally wide.

    Attributes:
        quantile: :math:`\hat q`.

    Example:
        >>> p = Prediction(torch.zeros(1, 9))
        >>> regressor = ConformalRegressor(level=0.8, score="absolute").fit(p, torch.arange(1.0, 10.0))
        >>> regressor.interval(Prediction(torch.tensor([[100.0]])))
        (tensor([92.]), tensor([108.]))
    """

    level: float = 0.9
    score: str = "normalised"
    quantile: float = field(default=math.inf, init=False)

    def __post_init__(self) -> None:
        self.level = checked_level(self.level)
        check_choice("score", self.score, ("normalised", "absolute"))

    def fit(self, prediction: Prediction, targets: Tensor) -> Self:
        """Find the quantile.

        Args:
            prediction: Of calibration data, neither trained nor tested on.
            targets: ``(batch, *)``.
        """
        targets = checked_targets(prediction, targets)
        mean, scale = prediction.mean, self._scale(prediction)
        if mean.shape == (*targets.shape, 1):
            targets = targets.unsqueeze(-1)
        if mean.shape != targets.shape:
            raise ValueError(
                f"Expected argument `targets` to have the shape {tuple(mean.shape)} of the predicted means, but got "
                f"{tuple(targets.shape)}. Reshape them."
            )
        scores = (targets.double() - mean).abs() / scale
        scores = scores.movedim(batch_axis(prediction), 0).reshape(scores.shape[batch_axis(prediction)], -1).amax(1)
        self.quantile = conformal_quantile(scores, self.level)
        self._fitted(prediction, len(scores))
        return self

    def interval(self, prediction: Prediction) -> tuple[Tensor, Tensor]:
        """Return the bounds of each example's interval, of the shape of ``prediction.mean``."""
        self._check_ready(prediction)
        reach = self.quantile * self._scale(prediction)
        return prediction.mean - reach, prediction.mean + reach

    def _scale(self, prediction: Prediction) -> Tensor:
        if not prediction.mean.isfinite().all():
            raise ValueError(
                "Expected argument `prediction` to have finite means, but one is infinite. Check the model; predict "
                "in float32 if it overflows."
            )
        if self.score == "absolute":
            return torch.ones_like(prediction.mean)
        scale = prediction.std
        if not (scale > 0).all():
            raise ValueError(
                "score='normalised' divides by the predictive standard deviation, which is 0 for some examples: the "
                "prediction has no noise and its draws agree. Use score='absolute', or a Gaussian likelihood."
            )
        return scale
