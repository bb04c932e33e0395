"""A dense layer between its two factors as one operation: less is kept, and less is called.

Autograd keeps x ∘ s for the gradient of the weight. Here it is computed again in the backward pass from x, which is
kept anyway, as the output of the layer before. (Convolutions would take a few percent longer: their rows are long.)
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from slimbayes._fast.guards import autograd_wanted, gradients_by_autograd, ordinary
from slimbayes._fast.row_noise import SignedNoise
from slimbayes._fast.scaled_rows import (
    Layout,
    layout_of,
    lying_as,
    plain_scaled,
    prepared,
    scaled,
    scaled_back,
    tables_fit,
    too_large,
)

#: From so many rows on, a product for the input's gradient takes longer than two passes over a weight for each group.
ROWS_OF_A_GROUP = 32


def scaled_linear(x: Tensor, weight: Tensor, s: Any, r: Any, bias: Tensor | None, axis: int) -> Tensor | None:
    r"""Return :math:`((x \circ s) W^\top) \circ r + b`, or None.

    Args:
        x: ``(rows, *, in)``.
        weight: W, ``(out, in)``.
        s: What the rows take of the input factor, see ``scale_rows``.
        r: What they take of the output factor.
        bias: b, ``(members, out)`` or ``(1, out)``, or None.
        axis: Axis of the rows.

    Example:
        >>> x, factor = torch.ones(4, 2), torch.tensor([[2.0, 3], [4, 5]])
        >>> y = scaled_linear(x, torch.eye(2), factor, factor, None, 0)
        >>> y is None or y[:, 0].tolist() == [4.0, 4.0, 16.0, 16.0]
        True
    """
    if not all(isinstance(v, SignedNoise) or (isinstance(v, Tensor) and v.dim() == 2) for v in (s, r)):
        return None
    if weight.dtype is not x.dtype or not ordinary(weight) or torch.is_autocast_enabled("cpu"):
        return None
    before, after = prepared(x, s, None, axis), prepared(x, r, bias, axis)
    if before is None or after is None or too_large(x):
        return None
    layout = layout_of(x, *before, x.dim() - 1)
    outputs, inputs = weight.shape
    if layout is None or x.shape[-1] != inputs or not tables_fit(len(x), outputs, x.dtype, *after):
        return None
    try:
        y: Tensor = _ScaledLinear.apply(x, weight, after[1], layout, *before[0], *after[0])
    except RuntimeError:  # torch.func is at work, and wants operations of another form
        return None
    return y


class _ScaledLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layout: Layout, *parts: Any) -> Tensor:
        y = F.linear(scaled(x, parts[:3], None, layout), weight)
        of_y = layout_of(y, parts[3:], bias, y.dim() - 1)
        assert of_y is not None  # what a product makes is contiguous
        ctx.save_for_backward(x, weight, bias, y, *parts)
        return scaled(y, parts[3:], bias, of_y)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, y, *parts = ctx.saved_tensors
        s, r = parts[:3], parts[3:]
        layout, layout_of_y = layout_of(x, s, None, x.dim() - 1), layout_of(y, r, bias, y.dim() - 1)
        if layout is None or layout_of_y is None or autograd_wanted(grad):
            of_x, of_weight, of_bias, *of_parts = gradients_by_autograd(_plain, (x, weight, bias, *parts), [grad])
            return of_x, of_weight, of_bias, None, *of_parts
        needs_x, needs_weight, needs_bias, _, needs_s, _, _, needs_r, *_ = ctx.needs_input_grad
        of_y = torch.empty_like(y)
        of_r, of_r_deviation, of_bias = scaled_back(
            lying_as(grad, y), y, r, bias if needs_bias else None, layout_of_y, of_y, needs_r
        )
        of_x = of_weight = of_s = of_s_deviation = None
        with torch.autocast("cpu", enabled=False):  # a backward pass may run where its forward pass did not
            if needs_s and needs_weight and not needs_x and s[1] is None and len(x) >= ROWS_OF_A_GROUP * len(s[0]):
                of_weight, of_s = _first_layer_back(of_y, x, weight, s[0])
            else:
                if needs_weight:
                    of_weight = of_y.flatten(0, -2).T @ scaled(x, s, None, layout).flatten(0, -2)
                if needs_x or needs_s:
                    of_x = lying_as(of_y @ weight, x)
                    of_s, of_s_deviation, _ = scaled_back(of_x, x, s, None, layout, of_x if needs_x else None, needs_s)
        of_x = of_x if needs_x else None
        return of_x, of_weight, of_bias, None, of_s, of_s_deviation, None, of_r, of_r_deviation, None


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


def _plain(x: Tensor, weight: Tensor, bias: Tensor | None, *parts: Any) -> Tensor:
    """Return the same in operations that autograd knows."""
    y = F.linear(plain_scaled(x, None, x.dim() - 1, *parts[:3]), weight)
    return plain_scaled(y, bias, y.dim() - 1, *parts[3:])
