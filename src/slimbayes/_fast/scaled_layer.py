"""A dense layer or a convolution between its two factors as one operation: less is kept, and less is called.

Autograd keeps x ∘ s for the gradient of the weight. Here it is made again in the backward pass from x, which is there
as the output of the layer before anyway.
"""

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from slimbayes._fast.guards import autograd_wanted, gradients_by_autograd, ordinary
from slimbayes._fast.row_noise import SignedNoise
from slimbayes._fast.scaled_rows import (
    Layout,
    fit,
    layout_of,
    lying_as,
    plain_scaled,
    prepared,
    scaled,
    scaled_back,
    too_large,
)
from slimbayes.layers.conv import Rank1Conv2d
from slimbayes.layers.linear import Rank1Linear

#: From so many rows on, a product for the input's gradient takes longer than two passes over a weight for each group.
ROWS_OF_A_GROUP = 32
#: Stride, padding, dilation and groups of a convolution; None for a dense layer.
Convolution = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int] | None


def scaled_layer(layer: Any, x: Tensor, s: Any, r: Any, bias: Tensor | None, axis: int) -> Tensor | None:
    r"""Return :math:`op(x \circ s) \circ r + b` of a dense layer or a convolution, or None.

    Args:
        layer: The Bayesian layer.
        x: Its input, rows on ``axis``.
        s: What the rows take of the input factor, see ``scale_rows``.
        r: What they take of the output factor.
        bias: b, ``(members, out)`` or ``(1, out)``, or None.
        axis: Axis of the rows.
    """
    if not all(isinstance(v, SignedNoise) or (isinstance(v, Tensor) and v.dim() == 2) for v in (s, r)):
        return None
    weight: Tensor = layer.weight
    convolution: Convolution = None
    if type(layer).op is Rank1Conv2d.op and isinstance(layer, Rank1Conv2d):
        if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            return None
        convolution = layer.stride, layer.padding, layer.dilation, layer.groups
    elif type(layer).op is not Rank1Linear.op:
        return None
    if weight.dtype is not x.dtype or not ordinary(weight) or torch.is_autocast_enabled("cpu"):
        return None
    before, after = prepared(x, s, None, axis), prepared(x, r, bias, axis)
    if before is None or after is None or too_large(x):
        return None
    inputs, outputs = layer.sizes()
    channel_dim = layer.channel_dim % x.dim()
    layout = layout_of(x, before[0], channel_dim)
    if layout is None or x.shape[channel_dim] != inputs:
        return None
    if not fit(len(x), inputs, *before) or not fit(len(x), outputs, *after):
        return None
    found: tuple[Tensor, Tensor] = _ScaledLayer.apply(
        x, weight, after[1], convolution, layout, channel_dim, *before[0], *after[0]
    )
    return found[0]


class _ScaledLayer(torch.autograd.Function):
    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor | None, convolution: Convolution, layout: Layout, dim: int, *parts: Any
    ) -> tuple[Tensor, Tensor]:
        y = _mapped(scaled(x, parts[:3], None, layout), weight, convolution)
        of_y = layout_of(y, parts[3:], dim)
        if of_y is None:
            y = y.contiguous()
            of_y = layout_of(y, parts[3:], dim)
        assert of_y is not None
        return scaled(y, parts[3:], bias, of_y), y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, weight, bias, ctx.convolution, ctx.layout, ctx.dim, *parts = inputs
        y = output[1]
        ctx.mark_non_differentiable(y)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight, bias, y, *parts)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[tuple[Tensor, Tensor], tuple[None, None]]:
        """Step aside inside ``torch.vmap``: what is asked for here is ordinary, and so has no axis that is mapped."""
        return _ScaledLayer.apply(*inputs), (None, None)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 12
        x, weight, bias, y, *parts = ctx.saved_tensors
        dim, s, r = ctx.dim, parts[:3], parts[3:]
        if autograd_wanted(grad):
            inputs = (x, weight, bias, ctx.convolution, dim, *parts)
            of_x, of_weight, of_bias, _, _, *of_parts = gradients_by_autograd(_plain, inputs, [grad])
            return of_x, of_weight, of_bias, None, None, None, *of_parts
        needs_x, needs_weight, needs_bias, _, _, _, *needs = ctx.needs_input_grad
        of_y = torch.empty_like(y)
        layout = layout_of(y, r, dim)
        assert layout is not None
        of_r, of_r_deviation, of_bias = scaled_back(
            lying_as(grad, y), y, r, bias if needs_bias else None, layout, of_y, any(needs[3:])
        )
        of_x = of_weight = of_s = of_s_deviation = None
        if ctx.convolution is None and not needs_x and s[1] is None and len(x) >= ROWS_OF_A_GROUP * len(s[0]):
            of_weight, of_s = _first_layer_back(of_y, x, weight, s[0])
        elif needs_x or any(needs[:3]) or needs_weight:
            of_x, of_weight = _mapped_back(
                of_y,
                scaled(x, s, None, ctx.layout) if needs_weight else x,
                weight,
                ctx.convolution,
                (needs_x or any(needs[:3]), needs_weight),
            )
        if of_x is not None:
            of_x = lying_as(of_x, x)
            of_s, of_s_deviation, _ = scaled_back(
                of_x, x, s, None, ctx.layout, of_x if needs_x else None, any(needs[:3])
            )
        return (
            *(of_x if needs_x else None, of_weight, of_bias, None, None, None),
            *(of_s, of_s_deviation, None, of_r, of_r_deviation, None),
        )


# torch asks for the signature at each call, and to find it takes longer than a small kernel.
_ScaledLayer.forward.__signature__ = inspect.signature(_ScaledLayer.forward)  # type: ignore[attr-defined]


def _mapped(x: Tensor, weight: Tensor, convolution: Convolution) -> Tensor:
    return F.linear(x, weight) if convolution is None else F.conv2d(x, weight, None, *convolution)


def _mapped_back(
    grad: Tensor, x: Tensor, weight: Tensor, convolution: Convolution, needs: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of input and weight."""
    if convolution is None:
        of_x = grad @ weight if needs[0] else None
        return of_x, grad.flatten(0, -2).T @ x.flatten(0, -2) if needs[1] else None
    stride, padding, dilation, groups = convolution
    of_x, of_weight, _ = torch.ops.aten.convolution_backward(
        grad, x, weight, None, stride, padding, dilation, False, (0, 0), groups, (*needs, False)
    )
    return of_x, of_weight


def _first_layer_back(grad: Tensor, x: Tensor, weight: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the gradients of weight and s of a dense layer whose input needs none.

    A product for the input's gradient is spared: with :math:`G_k = \sum_n g_n x_n^\top` over the rows of group k,

    .. math::
        \frac{\partial L}{\partial W} = \sum_k G_k \operatorname{diag}(s_k), \qquad
        \frac{\partial L}{\partial s_{ki}} = \sum_o W_{oi} G_{koi}
    """
    of_weight, of_s = torch.zeros_like(weight), torch.empty_like(s)
    by_group = (rows.reshape(len(s), -1, rows.shape[-1]).unbind() for rows in (grad, x))
    for k, (own_grad, own_x) in enumerate(zip(*by_group, strict=True)):  # one matrix after the other stays in the cache
        g = own_grad.T @ own_x
        torch.sum(g * weight, 0, out=of_s[k])
        of_weight.addcmul_(g, s[k])
    return of_weight, of_s


def _plain(x: Tensor, weight: Tensor, bias: Tensor | None, convolution: Convolution, dim: int, *parts: Any) -> Tensor:
    """Return the same in operations that autograd knows."""
    y = _mapped(plain_scaled(x, None, dim, *parts[:3]), weight, convolution)
    return plain_scaled(y, bias, dim, *parts[3:])
