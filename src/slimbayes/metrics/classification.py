"""Scores of class probabilities: how often, and how likely, the target was predicted."""

import math

import torch
from torch import Tensor

from slimbayes._checks import check_count
from slimbayes.metrics._inputs import as_classes, reduce

__all__ = ["accuracy", "brier_score", "negative_log_likelihood", "top_k_accuracy"]


def accuracy(probs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Return the share of examples whose most probable class is the target; of equal ones, the first counts.

    Args:
        probs: ``(batch, classes)``; logits and log-probabilities give the same.
        targets: ``(batch,)`` of class numbers.
        reduction: ``"mean"``, or ``"none"`` for 0 or 1 of each example, ``(batch,)``.

    Example:
        >>> accuracy(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1])).item()
        0.5
    """
    probs, targets = as_classes("probs", probs, targets, bounds=None)
    return reduce((probs.argmax(1) == targets).double(), reduction)


def top_k_accuracy(probs: Tensor, targets: Tensor, k: int = 5, reduction: str = "mean") -> Tensor:
    """Return the share of examples whose target is among the ``k`` most probable classes.

    Of equally probable classes those with lower numbers come first, so that ``k=1`` is the accuracy.

    Args:
        probs: ``(batch, classes)``; logits and log-probabilities give the same.
        targets: ``(batch,)`` of class numbers.
        k: How many.
        reduction: ``"mean"``, or ``"none"`` for 0 or 1 of each example, ``(batch,)``.

    Example:
        >>> top_k_accuracy(torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]]), torch.tensor([1, 0]), k=2).item()
        0.5
    """
    check_count("k", k)
    probs, targets = as_classes("probs", probs, targets, bounds=None)
    if k > probs.shape[1]:
        raise ValueError(f"Expected argument `k` to be at most the {probs.shape[1]} classes, but got {k}.")
    own = probs.gather(1, targets.unsqueeze(1))
    first = torch.arange(probs.shape[1], device=probs.device) < targets.unsqueeze(1)
    ahead = (probs > own) | ((probs == own) & first)
    return reduce((ahead.sum(1) < k).double(), reduction)


def negative_log_likelihood(log_probs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    r"""Return the mean of :math:`-\log p(y)`, from log-probabilities (``p.log_probs``: the mixture's, Eq. 14).

    It is infinite if a target had the probability 0.

    Args:
        log_probs: ``(batch, classes)``.
        targets: ``(batch,)`` of class numbers.
        reduction: ``"mean"``, or ``"none"`` for each example's, ``(batch,)``.

    Example:
        >>> round(negative_log_likelihood(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([1])).item(), 4)
        0.6931
    """
    log_probs, targets = as_classes("log_probs", log_probs, targets, bounds=(-math.inf, 0.0), complete=True)
    return reduce(-log_probs.gather(1, targets.unsqueeze(1)).squeeze(1), reduction)


def brier_score(probs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    r"""Return the mean of :math:`\sum_c (p_c - 1[y = c])^2`, between 0 and 2.

    Args:
        probs: ``(batch, classes)``.
        targets: ``(batch,)`` of class numbers.
        reduction: ``"mean"``, or ``"none"`` for each example's, ``(batch,)``.

    Example:
        >>> brier_score(torch.tensor([[0.5, 0.5]]), torch.tensor([1])).item()
        0.5
    """
    probs, targets = as_classes("probs", probs, targets, bounds=(0.0, 1.0), complete=True)
    truth = torch.nn.functional.one_hot(targets, probs.shape[1])
    return reduce((probs - truth).square().sum(1), reduction)
