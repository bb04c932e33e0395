"""Local reparameterisation of a dense layer (Kingma et al. 2015); k-tied weights need no matrix of variances."""

import math
from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor

from slimbayes.layers.base import fused

#: A bias's variance is at least this: it keeps the gradient of a square root finite where an input is all zeros.
SMALLEST_VARIANCE = 1e-30


def local_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, noise: Tensor, bias_log: Tensor | None, *logs: Tensor
) -> Tensor:
    r"""Return :math:`x W^\top + b + \sqrt{x^2 (\sigma^2)^\top + \sigma_b^2} \circ \epsilon`.

    Args:
        x: ``(rows, in)``.
        weight: The means W, ``(out, in)``.
        bias: b, ``(out,)``, or None.
        noise: Standard normal, ``(rows, out)``; may be overwritten.
        bias_log: log sigma_b, ``(out,)``, or None for a bias that is not random.
        *logs: log sigma, ``(out, in)``; or log u, ``(in, k)``, and log v, ``(out, k)``, with sigma = V U^T.

    Example:
        >>> x, weight = torch.ones(1, 3), torch.ones(2, 3)
        >>> two = torch.full((2, 3), 2.0).log()
        >>> local_linear(x, weight, None, torch.ones(1, 2), two[:, 0], two)  # 3 + sqrt(3 * 4 + 4)
        tensor([[7., 7.]])
    """
    found: Tensor | None = fused("local_linear", x, weight, bias, noise, bias_log, *logs)
    return plain_local_linear(x, weight, bias, noise, bias_log, *logs) if found is None else found


def variance_maps(*logs: Tensor) -> tuple[Tensor, ...]:
    """Return the weights of dense layers that, one after the other, take x^2 to the variances of the outputs.

    These are sigma^2, or its two factors if sigma is k-tied: a variance then costs O(batch (m + n) k^2).

    Args:
        *logs: As in ``local_linear``.
    """
    if len(logs) == 1:
        return ((2 * logs[0]).exp(),)
    inputs, outputs = (log_features(log.T).exp() for log in logs)
    return inputs, outputs.T


def bias_log_variance(bias_log: Tensor | None, like: Tensor) -> Tensor:
    """Return log sigma_b^2 of a bias, or that of none."""
    smallest = math.log(SMALLEST_VARIANCE)
    return like.new_full((), smallest) if bias_log is None else (2 * bias_log).clamp(min=smallest)


def standard_deviations(x: Tensor, bias_log: Tensor | None, logs: tuple[Tensor, ...]) -> Tensor:
    """Return the standard deviations of the outputs."""
    variance = reduce(F.linear, variance_maps(*logs), x.to(logs[0].dtype).square())
    return (variance + bias_log_variance(bias_log, logs[0]).exp()).sqrt()


def plain_local_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, noise: Tensor, bias_log: Tensor | None, *logs: Tensor
) -> Tensor:
    """Return what ``local_linear`` returns, in operations that autograd knows."""
    mean = F.linear(x, weight, bias)
    # In half precision a variance has few digits, and squares soon leave the range of float16.
    with torch.autocast(x.device.type, enabled=False):
        std = standard_deviations(x, bias_log, logs)
    return torch.addcmul(mean, std.to(mean.dtype), noise.to(mean.dtype))


def log_features(logs: Tensor) -> Tensor:
    r"""Return :math:`\log \phi(u)` of vectors u, :math:`\phi(u) = (u_1^2, \ldots, u_k^2, \sqrt2\, u_1 u_2, \ldots)`.

    .. math::
        \phi(u) \cdot \phi(v) = \sum_a u_a^2 v_a^2 + 2 \sum_{a < b} u_a u_b v_a v_b = (u \cdot v)^2

    Args:
        logs: log u, one vector in each column, ``(k, n)``.

    Returns:
        ``(k (k + 1) / 2, n)``.

    Example:
        >>> u, v = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
        >>> features = log_features(torch.stack([u, v], 1).log()).exp()
        >>> features[:, 0] @ features[:, 1]  # 11^2
        tensor(121.)
    """
    mixed = [logs[a + 1 :] + (logs[a] + 0.5 * math.log(2)) for a in range(len(logs) - 1)]
    return torch.cat([2 * logs, *mixed])
