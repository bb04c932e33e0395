"""Scores of predicted real values, of their densities and of their intervals."""

import torch
from torch import Tensor

from slimbayes.likelihoods import mixture
from slimbayes.metrics._inputs import as_double, reduce

__all__ = [
    "gaussian_negative_log_likelihood",
    "interval_coverage",
    "interval_width",
    "root_mean_squared_error",
]


def root_mean_squared_error(predictions: Tensor, targets: Tensor) -> Tensor:
    """Return the root of the mean squared error, over all targets of all examples.

    Args:
        predictions: ``(batch, *)``: ``p.mean``.
        targets: ``(batch, *)``.

    Example:
        >>> root_mean_squared_error(torch.tensor([3.0, 2.0]), torch.tensor([0.0, 5.0])).item()
        3.0
    """
    return squared_error(predictions, targets).sqrt()


def squared_error(predictions: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Return the squared error, the mean over an example's targets."""
    targets = as_double("targets", targets)
    return reduce(_each((like("predictions", predictions, targets) - targets).square()), reduction)


def gaussian_negative_log_likelihood(mean: Tensor, std: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    r"""Return :math:`-\log \frac1D \sum_d N(y \mid \mu_d, \sigma_d^2)`, of the mixture over draws (Eq. 14).

    An example with several targets has the product of their densities in each draw.

    Args:
        mean: ``(draws, batch, *)``.
        std: ``(draws, batch, *)``; both are ``p.moments``.
        targets: ``(batch, *)``.
        reduction: ``"mean"``, or ``"none"`` for each example's, ``(batch,)``.

    Example:
        >>> zero = torch.zeros(2, 1)
        >>> round(gaussian_negative_log_likelihood(zero, zero + 1, torch.tensor([0.0])).item(), 4)
        0.9189
    """
    mean, std, targets = normal_draws(mean, std, targets)
    if not (std > 0).all():
        raise ValueError(
            f"Expected argument `std` to be above 0, but got {std.min().item():g}. Bare draws have no density: predict "
            "with likelihood='gaussian', or score them with sb.metrics.crps."
        )
    log_likelihoods = torch.distributions.Normal(mean, std).log_prob(targets)
    return reduce(-mixture(log_likelihoods.flatten(2).sum(2) if mean.dim() > 2 else log_likelihoods), reduction)


def interval_coverage(low: Tensor, high: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Return the share of targets inside their intervals, bounds included; each of an example's targets counts.

    Args:
        low: ``(batch, *)``.
        high: ``(batch, *)``; both are ``p.interval(0.9)``.
        targets: ``(batch, *)``.
        reduction: ``"mean"``, or ``"none"`` for each example's, ``(batch,)``.

    Example:
        >>> interval_coverage(torch.zeros(4), torch.ones(4), torch.tensor([0.5, 2.0, 1.0, -1.0])).item()
        0.5
    """
    targets = as_double("targets", targets)
    low, high = like("low", low, targets), like("high", high, targets)
    _check_order(low, high)
    return reduce(_each(((low <= targets) & (targets <= high)).double()), reduction)


def interval_width(low: Tensor, high: Tensor, reduction: str = "mean") -> Tensor:
    """Return the mean width of intervals.

    Args:
        low: ``(batch, *)``.
        high: ``(batch, *)``; both are ``p.interval(0.9)``.
        reduction: ``"mean"``, or ``"none"`` for each example's, ``(batch,)``.

    Example:
        >>> interval_width(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 4.0])).item()
        2.0
    """
    high = as_double("high", high)
    low = like("low", low, high, "high")
    _check_order(low, high)
    return reduce(_each(high - low), reduction)


# ---------------------------------------------------------------------- arguments


def like(argument: str, values: Tensor, targets: Tensor, wanted: str = "targets") -> Tensor:
    """Return values of the targets' shape, in double precision; a last axis of one that these lack is dropped."""
    values = torch.as_tensor(values)
    if values.shape == (*targets.shape, 1):
        values = values.squeeze(-1)
    if values.shape != targets.shape:  # broadcasting would mix examples up
        raise ValueError(
            f"Expected argument `{argument}` to have the shape {tuple(targets.shape)} of `{wanted}`, but got "
            f"{tuple(values.shape)}. Reshape them."
        )
    return as_double(argument, values)


def normal_draws(mean: Tensor, std: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the draws' moments, ``(draws, batch, *)``, and the targets, in double precision."""
    targets = as_double("targets", targets)
    draws = targets.expand(len(mean), *targets.shape)
    mean, std = like("mean", mean, draws, "targets for each draw"), like("std", std, draws, "targets for each draw")
    if (std < 0).any():
        raise ValueError(f"Expected argument `std` to be at least 0, but got {std.min().item():g}.")
    return mean, std, targets


def _each(values: Tensor) -> Tensor:
    """Return the mean over an example's targets."""
    if not values.dim():
        raise ValueError("Expected arguments of shape (batch, *), but got single numbers. Unsqueeze them.")
    return values.reshape(len(values), -1).mean(1)


def _check_order(low: Tensor, high: Tensor) -> None:
    wrong = low > high
    if wrong.any():
        raise ValueError(
            f"Expected argument `low` to be at most `high`, but got {low[wrong][0].item():g} and "
            f"{high[wrong][0].item():g}. Pass them as low, high."
        )
