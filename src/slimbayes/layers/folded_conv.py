"""A convolution with a weight for each group of rows, W ∘ r s^T, as one operation with its own gradients."""

from typing import Any

import torch
from torch import Tensor

from slimbayes.layers.flips import parts_of
from slimbayes.layers.geometry import Geometry
from slimbayes.layers.own_gradients import autograd_wanted, gradients_by_autograd
from slimbayes.layers.scaled_conv import plain_conv

__all__ = ["folded_conv"]


def folded_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, s: Tensor | None, r: Tensor | None, geometry: Geometry
) -> Tensor:
    r"""Return what ``scaled_conv`` returns, by ordinary convolutions with the weights :math:`W \circ r_k s_k^\top`.

    No pass over input or output is needed but for putting the groups together. The gradients of the factors come from
    those of the weights, :math:`\partial r_k = (W \circ \partial W_k) s_k` and :math:`\partial s_k = (W \circ \partial
    W_k)^\top r_k`, where the product sums over the kernel's positions.

    Args:
        x: ``(rows, in, *)``.
        weight: W, of a convolution without groups of its own.
        bias: ``(members, out)``, whose number divides that of the groups of rows, or None.
        s: ``(groups, in)`` or None.
        r: ``(groups, out)`` or None; not both None.
        geometry: See ``scaled_conv``.

    Example:
        >>> s, r = torch.tensor([[1.0], [3]]), torch.tensor([[1.0], [10]])
        >>> folded_conv(torch.ones(4, 1, 5), torch.ones(1, 1, 1), None, s, r, Geometry((1,), (0,), (1,), 1))[:, 0, 0]
        tensor([ 1.,  1., 30., 30.])
    """
    y: Tensor = _FoldedConv.apply(x, weight, bias, s, r, geometry)
    return y


def _scales(weight: Tensor, s: Tensor | None, r: Tensor | None) -> Tensor:
    """Return r s^T of every group, ``(groups, out, in, 1, ...)``; a missing factor is one."""
    ones = [1] * (weight.dim() - 2)
    if s is None or r is None:
        return r.view(*r.shape, 1, *ones) if s is None else s.view(s.shape[0], 1, s.shape[1], *ones)  # type: ignore[union-attr]
    return (r.unsqueeze(2) * s.unsqueeze(1)).view(*r.shape, s.shape[1], *ones)


def _plain(
    x: Tensor, weight: Tensor, bias: Tensor | None, s: Tensor | None, r: Tensor | None, geometry: Geometry
) -> Tensor:
    return plain_conv(x, weight, bias, geometry, *parts_of(s), *parts_of(r))


class _FoldedConv(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, s: Tensor | None, r: Tensor | None, geometry: Geometry
    ) -> Tensor:
        scales = _scales(weight, s, r)
        share = 1 if bias is None else scales.shape[0] // bias.shape[0]
        y = None
        for i, (rows, scale) in enumerate(zip(x.chunk(scales.shape[0]), scales, strict=True)):
            own = None if bias is None else bias[i // share]
            piece = torch.convolution(rows, weight * scale, own, *geometry.arguments())
            if y is None:
                y = _for_all_rows(piece, x.shape[0])
            # At once, while the processor still has it at hand.
            y[i * len(piece) : (i + 1) * len(piece)] = piece
        ctx.save_for_backward(x, weight, bias, s, r)
        ctx.geometry = geometry
        assert y is not None
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, s, r = ctx.saved_tensors
        if autograd_wanted(grad):
            return gradients_by_autograd(_plain, (x, weight, bias, s, r, ctx.geometry), [grad])
        needs_x, needs_weight, needs_bias, needs_s, needs_r, _ = ctx.needs_input_grad
        scales = _scales(weight, s, r)
        groups = scales.shape[0]
        sizes = [weight.shape[0]] if needs_bias else None
        wanted = [needs_x, needs_weight or needs_s or needs_r, needs_bias]
        of_x = torch.empty_like(x) if needs_x else None
        of_weight = torch.zeros_like(weight) if needs_weight else None
        of_scales, of_biases = [], []
        for i, (g, rows, scale) in enumerate(zip(grad.chunk(groups), x.chunk(groups), scales, strict=True)):
            of_rows, of_folded, of_bias = torch.ops.aten.convolution_backward(
                g, rows, weight * scale, sizes, *ctx.geometry.arguments(), wanted
            )
            if of_x is not None:
                of_x[i * len(rows) : (i + 1) * len(rows)] = of_rows
            if of_weight is not None:
                of_weight.addcmul_(of_folded, scale)
            if needs_s or needs_r:
                of_scales.append(of_folded.mul_(weight).flatten(2).sum(2))
            of_biases.append(of_bias)
        of_s = of_r = None
        if of_scales:
            stacked = torch.stack(of_scales)
            of_r = (stacked if s is None else stacked * s.unsqueeze(1)).sum(2) if needs_r else None
            of_s = (stacked if r is None else stacked * r.unsqueeze(2)).sum(1) if needs_s else None
        of_all_biases = torch.stack(of_biases).view(bias.shape[0], -1, bias.shape[1]).sum(1) if needs_bias else None
        return of_x, of_weight, of_all_biases, of_s, of_r, None


def _for_all_rows(piece: Tensor, rows: int) -> Tensor:
    """Return memory for the outputs of all rows in the memory format of one group's."""
    last = piece.dim() == 4 and piece.is_contiguous(memory_format=torch.channels_last)
    layout = torch.channels_last if last else torch.contiguous_format
    return torch.empty((rows, *piece.shape[1:]), dtype=piece.dtype, device=piece.device, memory_format=layout)
