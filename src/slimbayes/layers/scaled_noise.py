"""Scales of factors and their slopes in few passes over memory, and noise that is scaled by them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from slimbayes.layers.own_gradients import autograd_wanted, gradients_by_autograd, plain_operations_wanted
from slimbayes.priors import SCALE_EPSILON, softplus_scale

__all__ = ["scale_and_slope", "scaled_noise"]

#: Passes over fewer scales cost less than the calls that make them.
LEAST_SCALES = 2**15


def scale_and_slope(rho: Tensor, buffer: Tensor) -> Tensor:
    """Return ``softplus_scale(rho)`` and write its derivative over ``rho``, sooner than torch has the softplus alone.

    Args:
        rho: Free parameters in full precision, outside autograd.
        buffer: Memory in their shape.

    Example:
        >>> rho = torch.zeros(2)
        >>> scale_and_slope(rho, torch.empty(2)), rho
        (tensor([0.6931, 0.6931]), tensor([0.5000, 0.5000]))
    """
    growth = torch.clamp(rho, max=40, out=buffer).exp_()  # above, the softplus is its argument to the last digit
    scale = growth.log1p()
    torch.maximum(scale, rho, out=scale).add_(SCALE_EPSILON)
    torch.div(growth, torch.add(growth, 1, out=rho), out=rho)
    return scale


def scaled_noise(noise: Tensor, rhos: Sequence[Tensor]) -> Tensor:
    """Return scale * noise of factors side by side.

    Args:
        noise: ``(members, draws, sum of channels)``.
        rhos: ``(members, channels)`` of each factor.

    Example:
        >>> scaled_noise(torch.ones(1, 1, 3), [torch.zeros(1, 2), torch.ones(1, 1)])
        tensor([[[0.6931, 0.6931, 1.3133]]])
    """
    if plain_operations_wanted() or rhos[0].shape[0] * noise.shape[2] < LEAST_SCALES:
        return _plain(noise, *rhos)
    scaled: Tensor = _ScaledNoise.apply(noise, *rhos)
    return scaled


def _plain(noise: Tensor, *rhos: Tensor) -> Tensor:
    return softplus_scale(torch.cat(rhos, 1)).unsqueeze(1) * noise


class _ScaledNoise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, noise: Tensor, *rhos: Tensor) -> Tensor:
        slope = torch.cat(rhos, 1)
        scale = scale_and_slope(slope, torch.empty_like(slope))
        ctx.save_for_backward(noise, slope, *rhos)
        return scale.unsqueeze(1) * noise

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        noise, slope, *rhos = ctx.saved_tensors
        if autograd_wanted(grad):
            return gradients_by_autograd(_plain, [noise, *rhos], [grad])
        slopes = grad * noise
        slopes = slopes.squeeze(1) if slopes.shape[1] == 1 else slopes.sum(1)
        return None, *slopes.mul_(slope).split([rho.shape[1] for rho in rhos], 1)
