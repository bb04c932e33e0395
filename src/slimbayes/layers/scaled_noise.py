"""Scales of factors and their slopes in few passes over memory, and noise that is scaled by them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from slimbayes.layers.own_gradients import autograd_wanted, gradients_by_autograd, plain_operations_wanted
from slimbayes.native import addresses, integers, kernel
from slimbayes.priors import SCALE_EPSILON, softplus_scale

__all__ = ["scale_and_slope", "scaled_noise"]


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


def scaled_noise(noise: Tensor, rhos: Sequence[Tensor], locs: Sequence[Tensor] = ()) -> tuple[Tensor, ...]:
    """Return scale * noise of factors whose noise lies side by side; with ``locs``, loc + scale * noise.

    Args:
        noise: ``(members, draws, sum of channels)``; may be overwritten. With ``locs``, of one draw.
        rhos: ``(members, channels)`` of each factor.
        locs: The same.

    Returns:
        Of each factor ``(members * draws, channels)``.

    Example:
        >>> scaled_noise(torch.ones(1, 1, 3), [torch.zeros(1, 2), torch.ones(1, 1)])
        (tensor([[0.6931, 0.6931]]), tensor([[1.3133]]))
    """
    dtype = noise.dtype
    compiled = not plain_operations_wanted() and type(noise) is Tensor and kernel("deviations", dtype) is not None
    known = compiled and noise.is_cpu and noise.is_contiguous()
    if not known or not all(x.is_cpu and x.dtype is dtype and x.is_contiguous() for x in (*rhos, *locs)):
        return _plain(noise, len(rhos), *rhos, *locs)
    scaled: tuple[Tensor, ...] = _ScaledNoise.apply(noise, len(rhos), *rhos, *locs)
    return scaled


def _plain(noise: Tensor, count: int, *rhos_and_locs: Tensor) -> tuple[Tensor, ...]:
    rhos, locs = rhos_and_locs[:count], rhos_and_locs[count:]
    scaled = softplus_scale(torch.cat(rhos, 1)).unsqueeze(1) * noise
    deviations = scaled.flatten(0, 1).split([rho.shape[1] for rho in rhos], 1)
    return tuple(loc + one for loc, one in zip(locs, deviations, strict=True)) if locs else deviations


class _ScaledNoise(torch.autograd.Function):
    """Keeps the deviations d and softplus'(rho) / scale, as d is proportional to the scale."""

    @staticmethod
    def forward(ctx: Any, noise: Tensor, count: int, *rhos_and_locs: Tensor) -> tuple[Tensor, ...]:
        rhos, locs = rhos_and_locs[:count], rhos_and_locs[count:]
        members, draws, channels = noise.shape
        ratios, values = noise.new_empty(members, channels), torch.empty_like(noise) if locs else None
        widths = [rho.shape[1] for rho in rhos]
        kernel("deviations", noise.dtype)(
            noise.data_ptr(),
            addresses(locs),
            addresses(rhos),
            integers(widths),
            count,
            members,
            draws,
            ratios.data_ptr(),
            None if values is None else values.data_ptr(),
        )
        ctx.save_for_backward(noise, ratios, *rhos_and_locs)
        ctx.set_materialize_grads(False)
        if values is None:
            return noise.view(members * draws, channels).split(widths, 1)
        pieces = values.view(-1).split([members * draws * width for width in widths])
        return tuple(piece.view(-1, width) for piece, width in zip(pieces, widths, strict=True))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        deviations, ratios, *rhos_and_locs = ctx.saved_tensors
        rhos, locs = rhos_and_locs[: len(grads)], rhos_and_locs[len(grads) :]
        members, draws, _ = deviations.shape
        widths = [rho.shape[1] for rho in rhos]
        if any(grad is not None and autograd_wanted(grad) for grad in grads):
            noise = deviations / softplus_scale(torch.cat(rhos, 1).detach()).unsqueeze(1)
            filled = [
                deviations.new_zeros(members * draws, width) if grad is None else grad
                for grad, width in zip(grads, widths, strict=True)
            ]
            return gradients_by_autograd(_plain, [noise, len(rhos), *rhos_and_locs], filled)
        given = [grad if grad is None or grad.stride(1) == 1 else grad.contiguous() for grad in grads]
        needed = ctx.needs_input_grad[2 : 2 + len(rhos)]
        of_rhos = [
            rho.new_empty(rho.shape) if needs and grad is not None else None
            for rho, grad, needs in zip(rhos, given, needed, strict=True)
        ]
        kernel("deviations_back", deviations.dtype)(
            deviations.data_ptr(),
            ratios.data_ptr(),
            addresses(given),
            integers([0 if grad is None else grad.stride(0) for grad in given]),
            addresses(of_rhos),
            integers(widths),
            len(rhos),
            members,
            draws,
        )
        return None, None, *of_rhos, *(grads if locs else ())
