"""Vectors whose dot product is a squared dot product: the variances of a k-tied weight have rank k (k + 1) / 2."""

import math

import torch
from torch import Tensor

__all__ = ["log_features", "through_features"]


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


def through_features(slopes: Tensor, k: int) -> Tensor:
    """Turn the gradient for the logarithms of the features into half of that for log u.

    Args:
        slopes: ``(k (k + 1) / 2, n)``; overwritten.
        k: Number of terms of u.

    Returns:
        ``(k, n)``.
    """
    logs, *mixed = slopes.split([k, *range(k - 1, 0, -1)])
    for a, products in enumerate(mixed):
        logs[a].add_(products.sum(0), alpha=0.5)
        logs[a + 1 :].add_(products, alpha=0.5)
    return logs
