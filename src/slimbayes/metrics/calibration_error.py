"""Whether what is predicted with probability p comes true with frequency p. All errors are fractions, not per cent."""

from typing import NamedTuple

import torch
from torch import Tensor

from slimbayes._checks import check_count
from slimbayes.metrics._inputs import as_classes, reduce
from slimbayes.metrics._ties import tie_means

__all__ = [
    "Reliability",
    "adaptive_calibration_error",
    "classwise_calibration_error",
    "expected_calibration_error",
    "reliability_curve",
    "signed_calibration_error",
]


class Reliability(NamedTuple):
    """What a reliability diagram shows.

    Attributes:
        edges: Bounds of the bins, ``(bins + 1,)``.
        confidence: Mean confidence in each bin, ``(bins,)``; NaN where it is empty.
        accuracy: Share of right predictions in each bin, ``(bins,)``; NaN where it is empty.
        count: Examples in each bin, ``(bins,)``.
    """

    edges: Tensor
    confidence: Tensor
    accuracy: Tensor
    count: Tensor  # type: ignore[assignment]  # not the tuple's method


def expected_calibration_error(probs: Tensor, targets: Tensor, bins: int = 15) -> Tensor:
    r"""Return the ECE, :math:`\sum_b \frac{n_b}{n} |acc_b - conf_b|` (Naeini et al. 2015; Guo et al. 2017, Eq. 3).

    Bins are of equal width and closed on the left; a confidence of exactly 1 belongs to the last one.

    Args:
        probs: ``(batch, classes)``.
        targets: ``(batch,)`` of class numbers.
        bins: Number of bins.

    Example:
        >>> probs = torch.tensor([[0.95, 0.05], [1.0, 0.0]])
        >>> round(expected_calibration_error(probs, torch.tensor([0, 1]), bins=10).item(), 6)
        0.475
    """
    return gap(top_label_sums(probs, targets, bins))


def adaptive_calibration_error(probs: Tensor, targets: Tensor, bins: int = 15) -> Tensor:
    r"""Return the ECE over bins of equal mass instead of equal width (Nixon et al. 2019, of the top label).

    The examples, sorted by confidence, are cut into ``bins`` runs whose lengths differ by one at most. Examples of
    equal confidence each count with their mean accuracy, so that their order does not matter.

    Args:
        probs: ``(batch, classes)``.
        targets: ``(batch,)`` of class numbers.
        bins: Number of bins.

    Example:
        >>> probs = torch.tensor([[0.6, 0.4], [0.7, 0.3], [0.8, 0.2], [0.9, 0.1]])
        >>> round(adaptive_calibration_error(probs, torch.tensor([1, 0, 0, 0]), bins=2).item(), 6)
        0.15
    """
    return adaptive_gap(*confidence_and_right(probs, targets), bins)


def classwise_calibration_error(probs: Tensor, targets: Tensor, bins: int = 15) -> Tensor:
    r"""Return :math:`\frac1C \sum_c \sum_b \frac{n_{bc}}{n} |freq_{bc} - p_{bc}|` (Kull et al. 2019).

    For each class all probabilities are binned, not only those of the predicted one; bins are those of the ECE.

    Args:
        probs: ``(batch, classes)``.
        targets: ``(batch,)`` of class numbers.
        bins: Number of bins.

    Example:
        >>> probs = torch.tensor([[0.75, 0.25], [0.75, 0.25]])
        >>> classwise_calibration_error(probs, torch.tensor([0, 1])).item()
        0.25
    """
    return gap(class_sums(probs, targets, bins))


def signed_calibration_error(probs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    r"""Return :math:`\sum_b \frac{n_b}{n} (conf_b - acc_b)`: above 0 is over-confident, below 0 under-confident.

    Without the absolute value bins cancel: it is the mean confidence minus the accuracy, whatever they are.

    Args:
        probs: ``(batch, classes)``.
        targets: ``(batch,)`` of class numbers.
        reduction: ``"mean"``, or ``"none"`` for each example's, ``(batch,)``.

    Example:
        >>> signed_calibration_error(torch.tensor([[0.75, 0.25], [0.75, 0.25]]), torch.tensor([0, 1])).item()
        0.25
    """
    confidence, right = confidence_and_right(probs, targets)
    return reduce(confidence - right, reduction)


def reliability_curve(probs: Tensor, targets: Tensor, bins: int = 15) -> Reliability:
    """Return confidence and accuracy in each bin of the ECE.

    Args:
        probs: ``(batch, classes)``.
        targets: ``(batch,)`` of class numbers.
        bins: Number of bins.

    Example:
        >>> probs = torch.tensor([[0.75, 0.25], [1.0, 0.0]])
        >>> reliability_curve(probs, torch.tensor([0, 1]), bins=2).accuracy.tolist()
        [nan, 0.5]
    """
    return curve(top_label_sums(probs, targets, bins))


# ---------------------------------------------------------------------- what the functions and the classes share


def confidence_and_right(probs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return each example's confidence and whether its label is right, as 0 or 1."""
    probs, targets = as_classes("probs", probs, targets, bounds=(0.0, 1.0))
    confidence, label = probs.max(1)
    return confidence, (label == targets).double()


def top_label_sums(probs: Tensor, targets: Tensor, bins: int) -> Tensor:
    """Return the count, the sum of confidences and of right predictions in each bin, ``(3, bins)``."""
    check_count("bins", bins)
    return _bin_sums(*confidence_and_right(probs, targets), bins)


def class_sums(probs: Tensor, targets: Tensor, bins: int) -> Tensor:
    """Return the same of each class and bin, every class being predicted, ``(3, classes * bins)``."""
    check_count("bins", bins)
    probs, targets = as_classes("probs", probs, targets, bounds=(0.0, 1.0), complete=True)
    return torch.cat([_bin_sums(own, (targets == c).double(), bins) for c, own in enumerate(probs.T)], 1)


def gap(sums: Tensor) -> Tensor:
    """Return the calibration error of sums over bins.

    Of sums over classes and bins, in which each example counts once for every class, it is the mean over classes.
    """
    count, confidence, right = sums
    return (right - confidence).abs().sum() / count.sum()


def adaptive_gap(confidence: Tensor, right: Tensor, bins: int) -> Tensor:
    """Return the calibration error over bins of equal mass."""
    check_count("bins", bins)
    order = confidence.argsort()
    excess = (tie_means(confidence, right) - confidence)[order]
    return torch.stack([part.sum().abs() for part in excess.tensor_split(bins)]).sum() / len(order)


def curve(sums: Tensor) -> Reliability:
    """Return the reliability curve of sums."""
    count, confidence, right = sums
    return Reliability(_edges(len(count), sums.device), confidence / count, right / count, count.long())


def _edges(bins: int, device: torch.device) -> Tensor:
    return torch.arange(bins + 1, dtype=torch.float64, device=device) / bins


def _bin_sums(confidence: Tensor, right: Tensor, bins: int) -> Tensor:
    # In single precision, which most confidences come from: 0.7 in it is less than 0.7 in double.
    inner = _edges(bins, confidence.device)[1:-1].float()
    position = torch.bucketize(confidence.float().contiguous(), inner, right=True)
    sums = torch.zeros(3, bins, dtype=torch.float64, device=confidence.device)
    return sums.index_add(1, position, torch.stack([torch.ones_like(confidence), confidence, right]))
