"""Sets of classes that hold the right one with a given probability."""

from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Generator, Tensor

from slimbayes._checks import check_choice
from slimbayes.calibration._calibrator import Calibrator
from slimbayes.calibration._quantile import checked_level, conformal_quantile
from slimbayes.calibration.split import checked_targets
from slimbayes.prediction import Prediction

__all__ = ["ConformalClassifier"]


@dataclass
class ConformalClassifier(Calibrator):
    r"""Split conformal prediction sets: on average over data like the calibration data, ``level`` hold the target.

    A set is :math:`\{y : s(x, y) \le \hat q\}`, with :math:`\hat q` the ``conformal_quantile`` of the calibration
    targets' scores. It holds whatever the model, and is small if the model is good.

    Args:
        level: Wanted coverage.
        score: ``"threshold"``: :math:`s = 1 - p_y` (Sadinle et al. 2019), the smallest sets if p is right. ``"aps"``:
            :math:`s = \sum_{c: p_c > p_y} p_c + u\, p_y` (Romano et al. 2020), with larger sets for
            harder examples and so a more even coverage. Equal probabilities stand in the order of their classes.
        randomised: For ``"aps"``: :math:`u` is uniform, one for each example, which makes the coverage exact. False:
            :math:`u = 1`, with sets that are the same each time.
        per_class: A quantile for each class, so that each class is covered (Vovk 2012); every class then needs
            enough calibration examples.
        allow_empty: Sets may be empty, as the exact coverage needs. False: the most probable class is always in.

    Attributes:
        quantiles: One, or one for each class.
        classes: Number of classes; two for Bernoulli.

    Example:
        >>> logits = torch.tensor([[[0.0, 1.0, 3.0]]]).expand(1, 99, 3)
        >>> targets = torch.tensor([2] * 80 + [1] * 15 + [0] * 4)
        >>> classifier = ConformalClassifier(level=0.9).fit(Prediction(logits), targets)
        >>> classifier.sets(Prediction(torch.tensor([[[0.0, 1.0, 3.0]]])))
        tensor([[False,  True,  True]])
    """

    level: float = 0.9
    score: str = "threshold"
    randomised: bool = True
    per_class: bool = False
    allow_empty: bool = True
    quantiles: list[float] = field(default_factory=list, init=False)
    classes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.level = checked_level(self.level)
        check_choice("score", self.score, ("threshold", "aps"))

    def fit(self, prediction: Prediction, targets: Tensor, generator: Generator | None = None) -> Self:
        """Find the quantiles.

        Args:
            prediction: Of calibration data, neither trained nor tested on.
            targets: Classes, ``(batch,)``.
            generator: Source of the randomness of ``"aps"``; None for torch's own.
        """
        targets = checked_targets(prediction, targets)
        probs = _class_probs(prediction)
        labels = _labels(targets, probs)
        scores = self._scores(probs, generator).gather(1, labels.unsqueeze(1)).squeeze(1)
        if self.per_class:
            self.quantiles = [
                conformal_quantile(scores[labels == label], self.level, f" of class {label}")
                for label in range(probs.shape[1])
            ]
        else:
            self.quantiles = [conformal_quantile(scores, self.level)]
        self.classes = probs.shape[1]
        self._fitted(prediction, len(labels))
        return self

    def sets(self, prediction: Prediction, generator: Generator | None = None) -> Tensor:
        """Return which classes are in each example's set, ``(batch, classes)`` of booleans.

        Args:
            prediction: Of other data than the calibration data.
            generator: Source of the randomness of ``"aps"``; None for torch's own. Let one generator run on through
                all batches: one that is seeded anew repeats its numbers.
        """
        self._check_ready(prediction)
        probs = _class_probs(prediction)
        if probs.shape[1] != self.classes:
            raise ValueError(
                f"Expected argument `prediction` to have the {self.classes} classes of the calibration data, but got "
                f"{probs.shape[1]}. Fit another ConformalClassifier."
            )
        sets = self._scores(probs, generator) <= probs.new_tensor(self.quantiles)
        if not self.allow_empty:
            sets[torch.arange(len(sets), device=sets.device), probs.argmax(1)] = True
        return sets

    def _scores(self, probs: Tensor, generator: Generator | None) -> Tensor:
        """Return the score of each class, ``(batch, classes)``."""
        if self.score == "threshold":
            return 1 - probs
        ordered, order = probs.sort(dim=1, descending=True, stable=True)
        last = torch.ones_like(ordered[:, :1])
        if self.randomised:
            device = None if generator is None else generator.device
            last = torch.rand(last.shape, generator=generator, device=device or probs.device, dtype=probs.dtype)
        before = ordered.cumsum(1) - ordered
        return torch.empty_like(probs).scatter_(1, order, before + last.to(probs.device) * ordered)


def _class_probs(prediction: Prediction) -> Tensor:
    """Return the mixture's class probabilities, ``(batch, classes)``, in double precision."""
    probs = replace(prediction, draws=prediction.outputs.detach().double()).class_log_probs.exp()
    if probs.dim() != 2:
        raise ValueError(
            f"Expected argument `prediction` to have one set of classes for each example, but its probabilities have "
            f"the shape {tuple(probs.shape)}. Positions of an example are not exchangeable: make a prediction of one "
            "of them, or of one label, and a ConformalClassifier for each."
        )
    if undefined := int(probs.isnan().any(1).sum()):
        raise ValueError(
            f"Expected argument `prediction` to have class probabilities, but those of {undefined} examples are not "
            "defined: a logit is infinite. Check the model; predict in float32 if it overflows."
        )
    return probs


def _labels(targets: Tensor, probs: Tensor) -> Tensor:
    examples, classes = probs.shape
    labels = targets.reshape(-1).long()
    right = targets.numel() == examples and ((labels == targets.reshape(-1)) & (labels >= 0) & (labels < classes)).all()
    if not right:
        raise ValueError(
            f"Expected argument `targets` to hold a class from 0 to {classes - 1} for each of the {examples} examples, "
            f"but got shape {tuple(targets.shape)} with values from {targets.min().item():g} to "
            f"{targets.max().item():g}. Probabilities of classes have no single score: pass their argmax."
        )
    return labels
