"""A convolution between an input and an output factor as one operation, with its own gradients."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from slimbayes.layers.own_gradients import autograd_wanted, gradients_by_autograd
from slimbayes.layers.scratch import scratch

__all__ = ["Geometry", "plain_conv", "scaled_conv"]

#: An output factor this small could lose digits of what it multiplies.
SMALLEST_FACTOR = 1e-12
#: As many fit into a core's cache together with what they are made of.
CACHED_ELEMENTS = 2**17
#: Where fewer lie last in memory, torch multiplies a row of positions at once much faster than each by its channels.
FEW_CHANNELS = 8


class Geometry(NamedTuple):
    """How a convolution moves over its input."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def arguments(self) -> tuple[Any, ...]:
        """Return what ``aten::convolution`` takes after the bias."""
        return self.stride, self.padding, self.dilation, False, [0] * len(self.stride), self.groups


def scaled_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, s: Tensor | None, r: Tensor | None, geometry: Geometry
) -> Tensor:
    r"""Return :math:`conv(x \circ s, W) \circ r + b` (Eq. 1), each group of rows with its own s, r and b.

    The same in plain operations is ``perturb``. This one keeps x for the backward pass and, without a bias, its own
    output, which a norm behind it keeps as well: :math:`\partial r = \frac1r \sum g \circ y` needs no more. (Change it
    in place if you like, but not through ``y.data``, which nobody notices.)

    Args:
        x: ``(rows, in, *)``.
        weight: W.
        bias: ``(groups, out)`` or None.
        s: ``(groups, in)`` or None. Each number of groups divides that of rows.
        r: ``(groups, out)`` or None.
        geometry: Stride, padding, dilation and the convolution's own groups.

    Example:
        >>> s, r = torch.tensor([[1.0], [3]]), torch.tensor([[1.0], [10]])
        >>> scaled_conv(torch.ones(4, 1, 5), torch.ones(1, 1, 1), None, s, r, Geometry((1,), (0,), (1,), 1))[:, 0, 0]
        tensor([ 1.,  1., 30., 30.])
    """
    y: Tensor = _ScaledConv.apply(x, weight, bias, s, r, geometry)
    return y


def plain_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, s: Tensor | None, r: Tensor | None, geometry: Geometry
) -> Tensor:
    """Return what ``scaled_conv`` returns, in operations that autograd knows."""
    y = torch.convolution(x if s is None else x * _for_rows(s, x), weight, None, *geometry.arguments())
    y = y if r is None else y * _for_rows(r, x)
    return y if bias is None else y + _for_rows(bias, x)


def _for_rows(values: Tensor, x: Tensor) -> Tensor:
    """Repeat ``(groups, channels)`` for the rows of x, in a shape that broadcasts with it."""
    share = x.shape[0] // values.shape[0]
    values = values if share == 1 else values.repeat_interleave(share, 0)
    return values.view(*values.shape, *[1] * (x.dim() - 2))


def _by_group(of_rows: Tensor, values: Tensor) -> Tensor:
    """Add up what the rows of a group have, for values ``(groups, channels)``."""
    return of_rows if of_rows.shape[0] == values.shape[0] else of_rows.view(values.shape[0], -1, values.shape[1]).sum(1)


def _scaled(x: Tensor, s: Tensor | None) -> Tensor:
    if s is None:
        return x
    values, out = _for_rows(s, x), scratch("input", x)
    if x.dim() == 4 and x.shape[1] < FEW_CHANNELS and x.is_contiguous(memory_format=torch.channels_last):
        values = values.expand(-1, -1, 1, x.shape[3]).movedim(1, -1).flatten(2)
        torch.mul(x.movedim(1, -1).flatten(2), values, out=out.movedim(1, -1).flatten(2))
        return out
    return torch.mul(x, values, out=out)


class _ScaledConv(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, s: Tensor | None, r: Tensor | None, geometry: Geometry
    ) -> Tensor:
        y = torch.convolution(_scaled(x, s), weight, None, *geometry.arguments())
        if y._is_view():  # some kernels work in more dimensions; nobody could change the output in place
            y = y.clone()
        ctx.output = product = None
        if r is not None:
            divisible = bias is None and bool((r.abs() > SMALLEST_FACTOR).all())
            if divisible or not ctx.needs_input_grad[4]:
                y.mul_(_for_rows(r, x))
                # Not among the saved tensors, or a ReLU that works in place on it would be an error. If something
                # has changed it, the backward pass takes notice.
                if ctx.needs_input_grad[4] and not y.is_inference():
                    ctx.output, ctx.version = y.detach(), y._version
            else:
                product = y
                y = y * _for_rows(r, x)
        if bias is not None:
            y.add_(_for_rows(bias, x))
        ctx.save_for_backward(x, weight, bias, s, r, product)
        ctx.geometry = geometry
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, s, r, product = ctx.saved_tensors
        if autograd_wanted(grad):
            return gradients_by_autograd(plain_conv, (x, weight, bias, s, r, ctx.geometry), [grad])
        needs_x, needs_weight, needs_bias, needs_s, needs_r, _ = ctx.needs_input_grad
        positions = tuple(range(2, x.dim()))
        of_bias = _by_group(grad.sum(positions), bias) if needs_bias else None
        of_r = None
        if r is not None:
            divisor: Tensor | float = 1.0
            if needs_r and product is None and ctx.output is not None and ctx.output._version == ctx.version:
                product, divisor = ctx.output, r
            elif needs_r and product is None:
                product = torch.convolution(_scaled(x, s), weight, None, *ctx.geometry.arguments())
            grad, of_rows = _times_and_sums(grad, _for_rows(r, x), product, scratch("gradient", grad))
            of_r = None if of_rows is None else _by_group(of_rows, r) / divisor
            ctx.output = product = None  # what holds the graph, such as a loss, is not to hold this
        wanted = [needs_x or needs_s, needs_weight, False]
        of_z, of_weight, _ = torch.ops.aten.convolution_backward(
            grad, _scaled(x, s), weight, None, *ctx.geometry.arguments(), wanted
        )
        of_s = None
        if s is not None and wanted[0]:
            values = _for_rows(s, x) if needs_x else None
            of_z, of_rows = _times_and_sums(of_z, values, x if needs_s else None, of_z)
            of_s = None if of_rows is None else _by_group(of_rows, s)
        return of_z if needs_x else None, of_weight if needs_weight else None, of_bias, of_s, of_r, None


def _times_and_sums(
    grad: Tensor, values: Tensor | None, factor: Tensor | None, out: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of a product's factor, grad * values, and of its values, those that a row has summed.

    Some rows at a time, which stay in the processor's cache from one operation to the next.

    Args:
        grad: Of the product, ``(rows, channels, *)``.
        values: ``(rows, channels, 1, ...)``; None if the product's factor needs no gradient.
        factor: In the gradient's shape; None if the values need no gradient.
        out: Memory for the first result, which may be that of the gradient.
    """
    if factor is None:
        return grad if values is None else torch.mul(grad, values, out=out), None
    rows = grad.shape[0]
    step = max(1, min(rows, CACHED_ELEMENTS * rows // grad.numel()))
    positions = tuple(range(2, grad.dim()))
    sums = grad.new_empty(grad.shape[:2])
    buffer = scratch("products", grad[:step])
    for begin in range(0, rows, step):
        some = slice(begin, begin + step)
        products = torch.mul(grad[some], factor[some], out=buffer[: min(step, rows - begin)])
        torch.sum(products, positions, out=sums[some])
        if values is not None:
            torch.mul(grad[some], values[some], out=out[some])
    return out, sums
