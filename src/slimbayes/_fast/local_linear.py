"""Local reparameterisation of a dense layer as one operation: allocating memory costs as much as the arithmetic."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from slimbayes._fast.guards import autograd_wanted, followed, gradients_by_autograd, has_memory
from slimbayes.layers._local_reparameterization import (
    bias_log_variance,
    log_features,
    plain_local_linear,
    standard_deviations,
)


def local_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, noise: Tensor, bias_log: Tensor | None, *logs: Tensor
) -> Tensor | None:
    """Return what ``layers._local_reparameterization.local_linear`` returns, or None; ``noise`` may be overwritten."""
    known = {x.dtype, weight.dtype, logs[0].dtype} in ({torch.float32}, {torch.float64})
    if not known or torch.is_autocast_enabled(x.device.type) or followed():
        return None
    if not all(tensor is None or has_memory(tensor) for tensor in (x, weight, bias, noise, bias_log, *logs)):
        return None
    y: Tensor = _LocalLinear.apply(x, weight, bias, noise, bias_log, *logs)
    return y


class _LocalLinear(torch.autograd.Function):
    """With h = grad * noise / std, the gradient of a variance is h / 2, and that of log sigma is sigma^2 h."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, noise: Tensor, bias_log: Tensor | None, *logs: Tensor
    ) -> Tensor:
        y = F.linear(x, weight, bias)
        squares = x.square()
        of_bias = bias_log_variance(bias_log, logs[0])
        if len(logs) == 1:
            maps, inner = (2 * logs[0]).exp_(), squares
            variance = F.linear(inner, maps).add_(of_bias.exp_())
        else:
            maps = _joint_maps(of_bias, *logs)
            inner = maps[:, : x.shape[1]] @ squares.T
            inner[-1] = 1.0
            variance = inner.T @ maps[:, x.shape[1] :]
        std = variance.sqrt_()
        y.addcmul_(std, noise)
        ctx.save_for_backward(x, weight, bias, noise.div_(std), bias_log, squares, maps, inner, *logs)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, ratio, bias_log, squares, maps, inner, *logs = ctx.saved_tensors
        if autograd_wanted(grad):
            noise = ratio * standard_deviations(x, bias_log, tuple(logs)).detach()
            return gradients_by_autograd(plain_local_linear, (x, weight, bias, noise, bias_log, *logs), [grad])
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        # The largest goes first, into memory that is free.
        of_weight = grad.T @ x if needs_weight else None
        of_bias = grad.sum(0) if needs_bias else None
        half = grad * ratio
        of_bias_log = of_squares = None
        if len(logs) == 1:
            of_logs: tuple[Tensor, ...] = ((half.T @ squares).mul_(maps),)
            if bias_log is not None:
                of_bias_log = half.sum(0).mul_(bias_log_variance(bias_log, maps).exp_())
            if needs_x:
                of_squares = half @ maps
        else:
            size, of_maps = x.shape[1], torch.empty_like(maps)
            # Few rows by many columns: the other way round these products take several times as long.
            torch.mm(inner, half, out=of_maps[:, size:])
            of_inner = maps[:-1, size:] @ half.T
            torch.mm(of_inner, squares, out=of_maps[:-1, :size])
            of_maps.mul_(maps)
            of_both = through_features(of_maps[:-1], logs[0].shape[1]).T.clone(memory_format=torch.contiguous_format)
            of_logs = of_both[:size], of_both[size:]
            if bias_log is not None:
                of_bias_log = of_maps[-1, size:]
            if needs_x:
                of_squares = of_inner.T @ maps[:-1, :size]
        of_x = None if of_squares is None else (grad @ weight).addcmul_(of_squares, x)
        return of_x, of_weight, of_bias, None, of_bias_log, *of_logs


def _joint_maps(of_bias: Tensor, log_u: Tensor, log_v: Tensor) -> Tensor:
    """Return both factors of sigma^2 side by side, ``(r + 1, in + out)``, and the bias's variances below the second.

    The bias is one more term of the product, from an input of 1.
    """
    features = log_features(torch.cat([log_u, log_v]).T)
    last = features.new_zeros(1, features.shape[1])
    last[0, log_u.shape[0] :] = of_bias
    return torch.cat([features, last]).exp_()


def through_features(gradients: Tensor, k: int) -> Tensor:
    """Turn the gradient for the logarithms of the features into half of that for log u.

    Args:
        gradients: ``(k (k + 1) / 2, n)``; overwritten.
        k: Number of terms of u.

    Returns:
        ``(k, n)``.
    """
    logs, *mixed = gradients.split([k, *range(k - 1, 0, -1)])
    for a, products in enumerate(mixed):
        logs[a].add_(products.sum(0), alpha=0.5)
        logs[a + 1 :].add_(products, alpha=0.5)
    return logs
