"""A convolution between an input and an output factor as one operation, with its own gradients."""

from typing import Any

import torch
from torch import Tensor

from slimbayes.layers.convolutions import whole_conv
from slimbayes.layers.flips import Flipped, Side, parts_of, side_of
from slimbayes.layers.geometry import Geometry
from slimbayes.layers.own_gradients import autograd_wanted, gradients_by_autograd
from slimbayes.layers.passes import NOTHING, scale, scale_back
from slimbayes.layers.scratch import scratch

__all__ = ["plain_conv", "scaled_conv"]

#: Of fewer channels, the gradient of the input takes several times as long as that of the weight.
FEW_CHANNELS = 8
#: Of so few terms is each output of a convolution at one position that costs little more than a pass over memory.
FEW_PRODUCTS = 128
#: Fewer rows of a draw would not pay for a gradient of their own.
LEAST_ROWS_BY_WEIGHT = 8


def scaled_conv(x: Tensor, weight: Tensor, bias: Tensor | None, s: Side, r: Side, geometry: Geometry) -> Tensor:
    r"""Return :math:`conv(x \circ s, W) \circ r + b` (Eq. 1), each group of rows with its own s, r and b.

    The same in plain operations is ``perturb``. This one keeps x for the backward pass and, without a bias, its own
    output, which a norm behind it keeps as well: :math:`\partial r = \frac1r \sum g \circ y` needs no more. (Change it
    in place if you like, but not through ``y.data``, which nobody notices.)

    Args:
        x: ``(rows, in, *)``.
        weight: W.
        bias: ``(groups, out)`` or None.
        s: ``(groups, in)``, ``Flipped`` for each row, or None. Each number of groups divides that of rows.
        r: The same for the outputs.
        geometry: Stride, padding, dilation and the convolution's own groups.

    Example:
        >>> s, r = torch.tensor([[1.0], [3]]), torch.tensor([[1.0], [10]])
        >>> scaled_conv(torch.ones(4, 1, 5), torch.ones(1, 1, 1), None, s, r, Geometry((1,), (0,), (1,), 1))[:, 0, 0]
        tensor([ 1.,  1., 30., 30.])
    """
    if not torch.is_grad_enabled():
        return _forward(x, weight, bias, s, r, geometry)
    trained: Tensor = _ScaledConv.apply(x, weight, bias, geometry, *parts_of(s), *parts_of(r))
    return trained


def _forward(x: Tensor, weight: Tensor, bias: Tensor | None, s: Side, r: Side, geometry: Geometry) -> Tensor:
    whole = whole_conv(x, weight, bias, s, r, geometry)
    if whole is not None:
        return whole
    y = _convolved(x, weight, s, geometry)
    if r is not None:
        return scale(y, r, bias, y)
    return y if bias is None else y.add_(_for_rows(bias, x))


def _convolved(x: Tensor, weight: Tensor, s: Side, geometry: Geometry) -> Tensor:
    y = torch.convolution(_scaled(x, s), weight, None, *geometry.arguments())
    # Some kernels work in more dimensions; nobody could change their output in place.
    return y.clone() if y._is_view() else y


def plain_conv(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry, *parts: Tensor | None) -> Tensor:
    """Return what ``scaled_conv`` returns, in operations that autograd knows; ``parts`` of s, then of r."""
    s, r = _values(side_of(*parts[:3])), _values(side_of(*parts[3:]))
    y = torch.convolution(x if s is None else x * _for_rows(s, x), weight, None, *geometry.arguments())
    y = y if r is None else y * _for_rows(r, x)
    return y if bias is None else y + _for_rows(bias, x)


def _values(side: Any) -> Any:
    return side.values() if isinstance(side, Flipped) else side


def _for_rows(values: Tensor, x: Tensor) -> Tensor:
    """Repeat ``(groups, channels)`` for the rows of x, in a shape that broadcasts with it."""
    rows, (groups, channels) = x.shape[0], values.shape
    if groups < rows:  # repeat_interleave takes several times as long
        values = values.unsqueeze(1).expand(groups, rows // groups, channels).reshape(rows, channels)
    return values.view(rows, channels, *[1] * (x.dim() - 2))


def _by_group(of_rows: Tensor, values: Tensor) -> Tensor:
    """Add up what the rows of a group have, for values ``(groups, channels)``."""
    return of_rows if of_rows.shape[0] == values.shape[0] else of_rows.view(values.shape[0], -1, values.shape[1]).sum(1)


def _scaled(x: Tensor, s: Side) -> Tensor:
    return x if s is None else scale(x, s, None, scratch("input", x))


class _ScaledConv(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry, *parts: Tensor | None
    ) -> Tensor:
        s, r = side_of(*parts[:3]), side_of(*parts[3:])
        trained = any(ctx.needs_input_grad[7:])
        ctx.output = product = None
        if trained and r is not None and bias is not None:
            product = _forward(x, weight, None, s, None, geometry)
            y = scale(product, r, bias, torch.empty_like(product))
        else:
            y = _forward(x, weight, bias, s, r, geometry)
            # Not among the saved tensors, or a ReLU that works in place on it would be an error. If something has
            # changed it, the backward pass takes notice.
            if trained and not y.is_inference() and not _is_cheap(weight):
                ctx.output, ctx.version = y.detach(), y._version
        ctx.save_for_backward(x, weight, bias, product, *parts)
        ctx.geometry = geometry
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, product, *parts = ctx.saved_tensors
        if autograd_wanted(grad):
            return gradients_by_autograd(plain_conv, (x, weight, bias, ctx.geometry, *parts), [grad])
        needs_x, needs_weight, needs_bias, _, *needs = ctx.needs_input_grad
        needs_s, needs_r = any(needs[:3]), any(needs[3:])
        s, r = side_of(*parts[:3]), side_of(*parts[3:])
        biases = bias.shape[0] if needs_bias else 0
        of_r, of_bias = NOTHING, None
        if r is None:
            of_bias = _by_group(grad.sum(tuple(range(2, x.dim()))), bias) if biases else None
        else:
            before, slopes = scratch("gradient", grad), None
            if needs_r and product is None and ctx.output is not None and ctx.output._version == ctx.version:
                slopes = scale_back(grad, ctx.output, r, before, biases=biases, divided=True)
            if slopes is None:
                if needs_r and product is None:
                    product = _forward(x, weight, None, s, None, ctx.geometry)
                slopes = scale_back(grad, product, r, before, sums=needs_r, biases=biases)
            assert slopes is not None
            grad, (of_r, of_bias) = before, slopes
            ctx.output = product = None  # what holds the graph, such as a loss, is not to hold this
        if s is not None and needs_s and not needs_x and _cheaper_by_weight(x, s, ctx.geometry):
            of_weight, of_parts = _by_weight(grad, x, weight, s, ctx.geometry)
            return None, of_weight if needs_weight else None, of_bias, None, *of_parts, *of_r
        of_x, of_kernel, of_s = _through(ctx.geometry, grad, x, weight, s, needs_x, needs_weight, needs_s)
        return of_x, of_kernel, of_bias, None, *of_s, *of_r


def _is_cheap(weight: Tensor) -> bool:
    """Tell whether to convolve once more rather than to keep the output: few products, as in a shortcut's layer."""
    return weight.numel() == weight.shape[0] * weight.shape[1] and weight.shape[1] <= FEW_PRODUCTS


def _through(
    geometry: Geometry,
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    s: Side,
    needs_x: bool,
    needs_weight: bool,
    needs_s: bool,
) -> tuple[Tensor | None, Tensor | None, tuple[Tensor | None, ...]]:
    """Return the gradients of x, the weight and the parts of s."""
    back = torch.ops.aten.convolution_backward
    if s is None or not (needs_x or needs_s):
        wanted = [needs_x, needs_weight, False]
        of_x, of_weight, _ = back(grad, _scaled(x, s), weight, None, *geometry.arguments(), wanted)
        return of_x, of_weight, NOTHING
    # The gradient of x ∘ s needs x ∘ s for its shape alone; both are then scaled in one pass.
    of_z = back(grad, x, weight, None, *geometry.arguments(), [True, False, False])[0]
    z = scratch("input", x) if needs_weight else None
    slopes = scale_back(of_z, x, s, of_z if needs_x else None, z, sums=needs_s)
    assert slopes is not None
    of_weight = None
    if z is not None:
        of_weight = back(grad, z, weight, None, *geometry.arguments(), [False, True, False])[1]
    return of_z if needs_x else None, of_weight, slopes.side


def _cheaper_by_weight(x: Tensor, s: Tensor | Flipped, geometry: Geometry) -> bool:
    draws = (s.deviation if isinstance(s, Flipped) else s).shape[0]
    return geometry.groups == 1 and x.shape[1] < FEW_CHANNELS and len(x) >= LEAST_ROWS_BY_WEIGHT * draws


def _by_weight(
    grad: Tensor, x: Tensor, weight: Tensor, s: Tensor | Flipped, geometry: Geometry
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    r"""Return the gradients of the weight and of s where x needs none, as in the layer in front: without that of x.

    Let :math:`N_j` be the gradient that the weight would have if the rows of draw j met it with x as it is. Then
    :math:`\partial W = \sum_j N_j \circ s_j` and :math:`\partial s_j = \sum W \circ N_j`, summed over all but the input
    channels. Rows with signs of their own, :math:`s = loc + b \circ d_j`, need the same of :math:`x \circ b` for
    :math:`d_j`: x and x ∘ b are channels of one input, which loc and d scale.
    """
    scales = s
    if isinstance(s, Flipped):
        draws = s.deviation.shape[0]
        x = torch.cat([x, _scaled(x, s.signs.to(x.dtype).repeat(draws, 1))], 1)
        weight = torch.cat([weight, weight], 1)
        scales = torch.cat([s.loc.repeat_interleave(draws // len(s.loc), 0), s.deviation], 1)
    assert isinstance(scales, Tensor)
    own = [
        torch.ops.aten.convolution_backward(slopes, rows, weight, None, *geometry.arguments(), [False, True, False])[1]
        for slopes, rows in zip(grad.chunk(len(scales)), x.chunk(len(scales)), strict=True)
    ]
    of_draws = torch.stack(own).flatten(3)  # (draws, out, in, positions)
    of_scales = (of_draws * weight.flatten(2)).sum((1, 3))
    of_weight = (of_draws * scales[:, None, :, None]).sum(0).view(weight.shape)
    if not isinstance(s, Flipped):
        return of_weight, (of_scales, None, None)
    of_loc, of_deviation = of_scales.chunk(2, 1)
    first, second = of_weight.chunk(2, 1)
    return first + second, (_by_group(of_loc, s.loc), of_deviation, None)
