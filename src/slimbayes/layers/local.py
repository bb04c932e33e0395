"""Local reparameterisation of a dense layer as one operation: new memory costs as much here as the arithmetic."""

from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from slimbayes.layers.own_gradients import gradients_by_autograd, plain_operations_wanted

__all__ = ["local_linear"]


def local_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, offset: Tensor, noise: Tensor, maps: tuple[Tensor, ...]
) -> Tensor:
    r"""Return :math:`x W^\top + b + \sqrt{x^2 A_1^\top \cdots + c} \circ \epsilon`.

    Args:
        x: ``(rows, in)``.
        weight: The means W, ``(out, in)``.
        bias: b, ``(out,)``, or None.
        offset: c, ``(out,)``: the bias's variance; positive, so that the root has a gradient.
        noise: Standard normal, ``(rows, out)``; may be overwritten.
        maps: One or two matrices whose product holds the variances of the weights: sigma^2, or its two factors.

    Example:
        >>> x, weight, sigma = torch.ones(1, 3), torch.ones(2, 3), torch.full((2, 3), 2.0)
        >>> offset = torch.full((2,), 4.0)
        >>> local_linear(x, weight, None, offset, torch.ones(1, 2), (sigma.square(),))  # 3 + sqrt(3 * 4 + 4)
        tensor([[7., 7.]])
    """
    fusible = {x.dtype, weight.dtype, offset.dtype} in ({torch.float32}, {torch.float64})
    if plain_operations_wanted() or not fusible or torch.is_autocast_enabled(x.device.type):
        return _plain(x, weight, bias, offset, noise, maps)
    return _LocalLinear.apply(x, weight, bias, offset, noise, *maps)


def _plain(
    x: Tensor, weight: Tensor, bias: Tensor | None, offset: Tensor, noise: Tensor, maps: tuple[Tensor, ...]
) -> Tensor:
    mean = F.linear(x, weight, bias)
    # In half precision a variance has few digits, and squares soon leave the range of float16.
    with torch.autocast(x.device.type, enabled=False):
        squares = x.to(offset.dtype).square()
        std = (reduce(F.linear, maps, squares) + offset).sqrt()
    return torch.addcmul(mean, std.to(mean.dtype), noise.to(mean.dtype))


def _plain_with_maps(x: Tensor, weight: Tensor, bias: Any, offset: Tensor, noise: Tensor, *maps: Tensor) -> Tensor:
    return _plain(x, weight, bias, offset, noise, maps)


class _LocalLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, offset: Tensor, noise: Tensor, *maps: Tensor
    ) -> Tensor:
        y = F.linear(x, weight, bias)
        squares = x.square()
        inner = F.linear(squares, maps[0]) if len(maps) == 2 else squares
        std = torch.addmm(offset, inner, maps[-1].T).sqrt_()
        y.addcmul_(std, noise)
        ratio = noise.div_(std)
        ctx.save_for_backward(x, weight, bias, offset, ratio, squares, inner, *maps)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, offset, ratio, squares, inner, *maps = ctx.saved_tensors
        if torch.is_grad_enabled():
            noise = ratio * torch.addmm(offset, inner, maps[-1].T).sqrt().detach()
            inputs = (x, weight, bias, offset, noise, *maps)
            return gradients_by_autograd(_plain_with_maps, inputs, [grad])
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        slope = grad * ratio  # twice the gradient of the variance
        of_inner = (slope @ maps[-1]).mul_(0.5)
        of_maps = [(slope.T @ inner).mul_(0.5)]
        of_squares = of_inner
        if len(maps) == 2:
            of_maps.insert(0, of_inner.T @ squares)
            of_squares = of_inner @ maps[0] if needs_x else of_inner
        of_x = (grad @ weight).addcmul_(of_squares, x, value=2.0) if needs_x else None
        of_weight = grad.T @ x if needs_weight else None
        of_bias = grad.sum(0) if needs_bias else None
        return of_x, of_weight, of_bias, slope.sum(0).mul_(0.5), None, *of_maps
