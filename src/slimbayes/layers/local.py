"""Local reparameterisation of a dense layer as one operation: new memory costs as much here as the arithmetic."""

import math
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from slimbayes.layers.own_gradients import autograd_wanted, gradients_by_autograd, plain_operations_wanted
from slimbayes.layers.products import product, turned_product
from slimbayes.layers.squared_dot import log_features, through_features

__all__ = ["local_linear", "variance_maps"]

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
    fusible = {x.dtype, weight.dtype, logs[0].dtype} in ({torch.float32}, {torch.float64})
    if plain_operations_wanted() or not fusible or torch.is_autocast_enabled(x.device.type):
        return _plain(x, weight, bias, noise, bias_log, *logs)
    return _LocalLinear.apply(x, weight, bias, noise, bias_log, *logs)


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


def _bias_log_variance(bias_log: Tensor | None, like: Tensor) -> Tensor:
    smallest = math.log(SMALLEST_VARIANCE)
    return like.new_full((), smallest) if bias_log is None else (2 * bias_log).clamp(min=smallest)


def _std(x: Tensor, bias_log: Tensor | None, logs: tuple[Tensor, ...]) -> Tensor:
    variance = reduce(F.linear, variance_maps(*logs), x.to(logs[0].dtype).square())
    return (variance + _bias_log_variance(bias_log, logs[0]).exp()).sqrt()


def _plain(
    x: Tensor, weight: Tensor, bias: Tensor | None, noise: Tensor, bias_log: Tensor | None, *logs: Tensor
) -> Tensor:
    mean = F.linear(x, weight, bias)
    # In half precision a variance has few digits, and squares soon leave the range of float16.
    with torch.autocast(x.device.type, enabled=False):
        std = _std(x, bias_log, logs)
    return torch.addcmul(mean, std.to(mean.dtype), noise.to(mean.dtype))


class _LocalLinear(torch.autograd.Function):
    """The gradient of a variance is half of ``slope``, that of log sigma twice sigma^2 times it: 1/2 and 2 cancel."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, noise: Tensor, bias_log: Tensor | None, *logs: Tensor
    ) -> Tensor:
        y = product(x, weight, turned=True, bias=bias)
        squares = x.square()
        of_bias = _bias_log_variance(bias_log, logs[0])
        if len(logs) == 1:
            maps, inner = (2 * logs[0]).exp_(), squares
            variance = product(inner, maps, turned=True).add_(of_bias.exp_())
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
            noise = ratio * _std(x, bias_log, tuple(logs)).detach()
            return gradients_by_autograd(_plain, (x, weight, bias, noise, bias_log, *logs), [grad])
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        # The largest goes first, into memory that is free.
        of_weight = turned_product(grad, x) if needs_weight else None
        of_bias = grad.sum(0) if needs_bias else None
        slope = grad * ratio
        of_bias_log = of_squares = None
        if len(logs) == 1:
            of_logs: tuple[Tensor, ...] = (turned_product(slope, squares).mul_(maps),)
            if bias_log is not None:
                of_bias_log = slope.sum(0).mul_(_bias_log_variance(bias_log, maps).exp_())
            if needs_x:
                of_squares = product(slope, maps)
        else:
            size, of_maps = x.shape[1], torch.empty_like(maps)
            # Few rows by many columns: the other way round these products take several times as long.
            torch.mm(inner, slope, out=of_maps[:, size:])
            of_inner = maps[:-1, size:] @ slope.T
            torch.mm(of_inner, squares, out=of_maps[:-1, :size])
            of_maps.mul_(maps)
            of_both = through_features(of_maps[:-1], logs[0].shape[1]).T.clone(memory_format=torch.contiguous_format)
            of_logs = of_both[:size], of_both[size:]
            if bias_log is not None:
                of_bias_log = of_maps[-1, size:]
            if needs_x:
                of_squares = of_inner.T @ maps[:-1, :size]
        of_x = None if of_squares is None else product(grad, weight).addcmul_(of_squares, x)
        return of_x, of_weight, of_bias, None, of_bias_log, *of_logs


def _joint_maps(of_bias: Tensor, log_u: Tensor, log_v: Tensor) -> Tensor:
    """Return both factors of sigma^2 side by side, ``(r + 1, in + out)``, and the bias's variances below the second.

    The bias is one more term of the product, from an input of 1.
    """
    features = log_features(torch.cat([log_u, log_v]).T)
    last = features.new_zeros(1, features.shape[1])
    last[0, log_u.shape[0] :] = of_bias
    return torch.cat([features, last]).exp_()
