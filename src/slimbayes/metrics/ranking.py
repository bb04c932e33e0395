"""How well a score tells yes from no, over all thresholds."""

import torch
from torch import Tensor

from slimbayes.metrics._inputs import UndefinedScoreError, as_double

__all__ = ["auc_pr", "auc_roc"]


def auc_roc(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the area under the receiver operating characteristic.

    It is the probability that a random yes scores higher than a random no, a tie counting one half.

    Args:
        scores: ``(batch,)``, higher for yes: ``p.probs`` of a Bernoulli, or ``p.probs[:, 1]`` of two classes.
        targets: ``(batch,)`` of 0 and 1.

    Example:
        >>> auc_roc(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1])).item()
        0.75
    """
    hits, alarms = cumulative_counts(scores, targets)
    yes, no = hits[-1], alarms[-1]
    if not yes or not no:
        raise UndefinedScoreError(
            f"The AUC-ROC needs targets of both kinds, but all are {int(yes > 0)}. Score more examples at once: "
            "collect them with sb.metrics.AucRoc and compute at the end."
        )
    return torch.trapezoid(hits / yes, alarms / no)


def auc_pr(scores: Tensor, targets: Tensor) -> Tensor:
    r"""Return the average precision, :math:`\sum_t (R_t - R_{t-1}) P_t` over the distinct scores, as scikit-learn does.

    Args:
        scores: ``(batch,)``, higher for yes: ``p.probs`` of a Bernoulli, or ``p.probs[:, 1]`` of two classes.
        targets: ``(batch,)`` of 0 and 1.

    Example:
        >>> round(auc_pr(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1])).item(), 4)
        0.8333
    """
    hits, alarms = cumulative_counts(scores, targets)
    if not hits[-1]:
        raise UndefinedScoreError(
            "The AUC-PR needs at least one target 1, but all are 0. Score more examples at once: collect them with "
            "sb.metrics.AucPr and compute at the end."
        )
    precision = hits[1:] / (hits[1:] + alarms[1:])
    return (hits.diff() / hits[-1] * precision).sum()


def cumulative_counts(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many 1s and how many 0s reach each distinct score, from the highest down, after a leading 0."""
    shape, wanted = tuple(torch.as_tensor(scores).shape), tuple(torch.as_tensor(targets).shape)
    if len(shape) != 1 or wanted != shape:
        raise ValueError(
            f"Expected arguments `scores` and `targets` of shape (batch,), but got {shape} and {wanted}. Pass the "
            "score of yes alone: p.probs of a Bernoulli, or p.probs[:, 1] of two classes."
        )
    scores, targets = as_double("scores", scores), as_double("targets", targets)
    wrong = (targets != 0) & (targets != 1)
    if wrong.any():
        raise ValueError(f"Expected argument `targets` to hold 0 and 1, but got {targets[wrong][0].item():g}.")
    values, group = scores.unique(return_inverse=True)
    counts = torch.zeros(2, len(values) + 1, dtype=torch.float64, device=scores.device)
    position = len(values) - group
    hits, alarms = counts.index_add(1, position, torch.stack([targets, 1 - targets])).cumsum(1)
    return hits, alarms
