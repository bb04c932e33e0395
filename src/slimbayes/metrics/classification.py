"""Scores of class probabilities."""

import torch
from torch import Tensor

from slimbayes._checks import check_count

__all__ = ["accuracy", "brier_score", "expected_calibration_error", "negative_log_likelihood"]


def _check(probs: Tensor, targets: Tensor) -> None:
    if probs.dim() != 2 or targets.shape != probs.shape[:1] or not len(targets):
        raise ValueError(
            f"Expected argument `probs` of shape (batch, classes) and `targets` of shape (batch,), but got "
            f"{tuple(probs.shape)} and {tuple(targets.shape)}. Flatten positions into the batch first."
        )
    if probs.isnan().any():
        raise ValueError("Expected argument `probs` to have no NaN. Check the model's outputs.")
    if (targets < 0).any() or (targets >= probs.shape[1]).any():
        wrong = targets[(targets < 0) | (targets >= probs.shape[1])][0].item()
        raise ValueError(
            f"Expected argument `targets` to hold classes from 0 to {probs.shape[1] - 1}, but got {wrong}. "
            "Check the labels."
        )


def accuracy(probs: Tensor, targets: Tensor) -> Tensor:
    """Return the share of examples whose most probable class is the target.

    Example:
        >>> accuracy(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1]))
        tensor(0.5000)
    """
    _check(probs, targets)
    return (probs.argmax(1) == targets).to(probs.dtype).mean()


def negative_log_likelihood(log_probs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of -log p(target), from log-probabilities (``p.log_probs``: the mixture's, Eq. 14).

    Example:
        >>> negative_log_likelihood(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([1]))
        tensor(0.6931)
    """
    _check(log_probs, targets)
    if (log_probs > 1e-6).any():
        raise ValueError(
            f"Expected argument `log_probs` to hold logarithms of probabilities, but got {log_probs.max().item():g}. "
            "Pass p.log_probs, or probs.log()."
        )
    return -log_probs.gather(1, targets.long().unsqueeze(1)).mean()


def brier_score(probs: Tensor, targets: Tensor) -> Tensor:
    r"""Return the mean of :math:`\sum_c (p_c - 1[y = c])^2`, between 0 and 2.

    Example:
        >>> brier_score(torch.tensor([[0.5, 0.5]]), torch.tensor([1]))
        tensor(0.5000)
    """
    _check(probs, targets)
    truth = torch.nn.functional.one_hot(targets.long(), probs.shape[1])
    return (probs - truth).square().sum(1).mean()


def expected_calibration_error(probs: Tensor, targets: Tensor, bins: int = 15) -> Tensor:
    r"""Return the ECE, :math:`\sum_b \frac{n_b}{n} |acc_b - conf_b|`, as a fraction.

    Bins are of equal width and closed on the left; a confidence of exactly 1 belongs to the last one.

    Args:
        probs: ``(batch, classes)``.
        targets: ``(batch,)``.
        bins: Number of bins.

    Example:
        >>> probs = torch.tensor([[0.95, 0.05], [1.0, 0.0]])
        >>> expected_calibration_error(probs, torch.tensor([0, 1]), bins=10)
        tensor(0.4750)
    """
    check_count("bins", bins)
    _check(probs, targets)
    confidence, label = probs.max(1)
    place = (confidence * bins).long().clamp(0, bins - 1)
    gap = torch.zeros(bins, dtype=probs.dtype, device=probs.device)
    gap.index_add_(0, place, (label == targets).to(probs.dtype) - confidence)
    return gap.abs().sum() / len(targets)
