"""Yes or no, written as two classes."""

import torch
from torch import Tensor

from slimbayes.metrics._inputs import as_double, as_probs

__all__ = ["from_confidence", "two_class"]


def two_class(probs: Tensor) -> Tensor:
    """Return ``(batch, 2)``, the probabilities of no and yes, from those of yes (``p.probs`` of a Bernoulli).

    ``p.class_log_probs`` holds the same as logarithms, without the rounding of 1 - p.

    Args:
        probs: ``(batch,)`` or ``(batch, 1)``.

    Example:
        >>> two_class(torch.tensor([0.25, 1.0])).tolist()
        [[0.75, 0.25], [0.0, 1.0]]
    """
    if probs.dim() not in (1, 2) or (probs.dim() == 2 and probs.shape[1] != 1):
        raise ValueError(
            f"Expected argument `probs` of shape (batch,) or (batch, 1), but got {tuple(probs.shape)}. Several labels: "
            "flatten them into the batch."
        )
    yes = as_probs("probs", probs.reshape(-1, 1), bounds=(0.0, 1.0)).squeeze(1).clamp(0, 1)
    return torch.stack([1 - yes, yes], 1)


def from_confidence(confidence: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``probs`` and ``targets`` for scores that depend on the confidence and on whether it was right alone.

    These are the accuracy, the calibration errors but for the class-wise one, the reliability curve and the
    risk-coverage curve: two numbers of each example are enough to keep.

    Args:
        confidence: ``(batch,)``, the probability of the predicted class.
        right: ``(batch,)``, whether it was the target.

    Example:
        >>> probs, targets = from_confidence(torch.tensor([0.25]), torch.tensor([False]))
        >>> probs.tolist(), targets.tolist()
        ([[0.25, 0.0]], [1])
    """
    if confidence.dim() != 1 or right.shape != confidence.shape:
        raise ValueError(
            f"Expected arguments `confidence` and `right` of shape (batch,), but got {tuple(confidence.shape)} and "
            f"{tuple(right.shape)}. Flatten them."
        )
    return torch.stack([confidence, torch.zeros_like(confidence)], 1), (as_double("right", right) == 0).long()
