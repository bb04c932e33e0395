"""The continuous ranked probability score: the squared error of a whole distribution function."""

import math

import torch
from torch import Tensor

from slimbayes.metrics._inputs import reduce
from slimbayes.metrics.regression import normal_draws

__all__ = ["crps"]


def crps(mean: Tensor, std: Tensor | None, targets: Tensor, reduction: str = "mean") -> Tensor:
    r"""Return the mean of :math:`\int (F(z) - 1[z \ge y])^2 dz`, in the targets' units, of the mixture over draws.

    For normals the integral has a closed form (Grimit et al. 2006),

    .. math:: \frac1D \sum_d A(y - \mu_d, \sigma_d^2)
              - \frac1{2 D^2} \sum_{d,e} A(\mu_d - \mu_e, \sigma_d^2 + \sigma_e^2),

    :math:`A(m, s^2) = 2 s \varphi(m/s) + m (2 \Phi(m/s) - 1)`. Without noise it is that of the draws' empirical
    distribution, with :math:`A(m, 0) = |m|`; for one draw, the absolute error. Several targets of an example are
    averaged.

    Args:
        mean: ``(draws, batch, *)``.
        std: ``(draws, batch, *)``; both are ``p.moments``. None, or zeros, for bare draws.
        targets: ``(batch, *)``.
        reduction: ``"mean"``, or ``"none"`` for each example's, ``(batch,)``.

    Example:
        >>> round(crps(torch.zeros(1, 1), torch.ones(1, 1), torch.tensor([0.0])).item(), 4)
        0.2337
        >>> crps(torch.tensor([[0.0], [1.0]]), None, torch.tensor([1.0])).item()
        0.25
    """
    mean, std, targets = normal_draws(mean, torch.zeros_like(mean) if std is None else std, targets)
    error = _mean_absolute(targets - mean, std).mean(0)
    spread = _spread(mean, std) if std.any() else _bare_spread(mean)
    score = (error - spread).reshape(len(targets), -1).mean(1)
    return reduce(torch.where(score.isnan(), math.inf, score), reduction)  # both are infinite for infinite draws


def _mean_absolute(mean: Tensor, std: Tensor) -> Tensor:
    """Return A, the mean absolute value of a normal variable."""
    ratio = torch.where(std > 0, mean / std, 0.0)
    density = (-0.5 * ratio.square()).exp() / math.sqrt(2 * math.pi)
    noisy = 2 * std * density + mean * torch.erf(ratio / math.sqrt(2))
    return torch.where(std > 0, noisy, mean.abs())


def _spread(mean: Tensor, std: Tensor) -> Tensor:
    """Return half the mean absolute difference of two draws, pair by pair."""
    total = (std / math.sqrt(math.pi)).sum(0)  # a draw and itself, half of A(0, 2 std^2)
    for d in range(1, len(mean)):
        total = total + _mean_absolute(mean[d] - mean[:d], torch.hypot(std[d], std[:d])).sum(0)
    return total / len(mean) ** 2


def _bare_spread(draws: Tensor) -> Tensor:
    """Return the same for draws without noise: of sorted values, a known number of pairs spans each gap."""
    below = torch.arange(1, len(draws), dtype=draws.dtype, device=draws.device)
    pairs = (below * (len(draws) - below)).view(-1, *[1] * (draws.dim() - 1))
    return (draws.sort(0).values.diff(dim=0) * pairs).sum(0) / len(draws) ** 2
