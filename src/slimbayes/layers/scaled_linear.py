"""A dense layer between an input and an output factor as one operation, with its own gradients."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from slimbayes.layers.flips import Flipped, Side, parts_of, side_of
from slimbayes.layers.own_gradients import autograd_wanted, gradients_by_autograd
from slimbayes.layers.scratch import scratch

__all__ = ["scaled_linear"]

#: From so many rows of a group on, the gradient of an input factor comes cheaper from the weight's.
LEAST_ROWS_BY_WEIGHT = 48
#: Where a group has so many times fewer outputs than rows, everything about its weight is cheap.
FEWER_OUTPUTS = 4
#: As many of a weight's fit into a core's cache together with what they are made of.
CACHED_ELEMENTS = 2**18


def scaled_linear(x: Tensor, weight: Tensor, bias: Tensor | None, s: Side, r: Side) -> Tensor:
    r"""Return :math:`((x \circ s) W^\top) \circ r + b` (Eq. 1), each group of rows with its own s, r and b.

    The same in plain operations is ``perturb``. This one keeps x and the output of the product for the backward pass
    and computes :math:`x \circ s` again, works in place, and never stores a factor's values for each row.

    Args:
        x: ``(rows, *, in)``.
        weight: W, ``(out, in)``.
        bias: ``(groups, out)`` or None.
        s: ``(groups, in)``, ``Flipped`` for each row, or None. Each number of groups divides that of rows.
        r: The same for the outputs.

    Example:
        >>> s, r = torch.tensor([[1.0, 2], [3, 4]]), torch.tensor([[1.0], [10]])
        >>> scaled_linear(torch.ones(4, 2), torch.ones(1, 2), None, s, r)[:, 0]
        tensor([ 3.,  3., 70., 70.])
    """
    y: Tensor = _ScaledLinear.apply(x, weight, bias, *parts_of(s), *parts_of(r))
    return y


def _plain(x: Tensor, weight: Tensor, bias: Tensor | None, *parts: Tensor | None) -> Tensor:
    s, r = (side.values() if isinstance(side, Flipped) else side for side in (side_of(*parts[:3]), side_of(*parts[3:])))
    y = F.linear(x if s is None else _by_group(x, s) * s.unsqueeze(1), weight)
    y = y if r is None else _by_group(y, r) * r.unsqueeze(1)
    y = y if bias is None else _by_group(y, bias) + bias.unsqueeze(1)
    return y.reshape(*x.shape[:-1], -1)


def _by_group(x: Tensor, values: Tensor) -> Tensor:
    """View rows as ``(groups, rows of a group, channels)``, for values ``(groups, channels)``."""
    return x.reshape(values.shape[0], -1, x.shape[-1])


def _values(side: Tensor | Flipped) -> Tensor:
    """Return values ``(groups, channels)``; those of each row are there until the next call."""
    if isinstance(side, Tensor):
        return side
    return side.values(out=scratch("values", side.loc, side.rows, side.loc.shape[1]))


def _gradients(side: Tensor | Flipped, grad: Tensor, factor: Tensor, buffer: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of what a side is made of.

    Args:
        side: Values.
        grad: The gradient of their product with ``factor``, ``(places, channels)``.
        factor: ``(places, channels)``.
        buffer: Memory in that shape.
    """
    places, channels = grad.shape
    groups = side.rows if isinstance(side, Flipped) else side.shape[0]
    given = groups == places and isinstance(side, Tensor)  # what is handed out cannot be scratch
    slopes = torch.mul(grad, factor, out=None if given else buffer)
    slopes = slopes if groups == places else slopes.view(groups, -1, channels).sum(1)
    if isinstance(side, Tensor):
        return slopes, None, None
    return *side.gradients(slopes, slopes), None


def _times(x: Tensor, values: Tensor, out: Tensor | None = None) -> Tensor:
    """Multiply ``(places, channels)`` by the values of each place's group."""
    groups = values.shape[0]
    if groups == x.shape[0]:
        return torch.mul(x, values, out=out)
    shape = (groups, -1, x.shape[1])
    if out is None:
        return torch.mul(x.view(shape), values.unsqueeze(1)).view(x.shape)
    torch.mul(x.view(shape), values.unsqueeze(1), out=out.view(shape))
    return out


def _times_plus(x: Tensor, values: Tensor, bias: Tensor, out: Tensor) -> Tensor:
    """Multiply as ``_times`` and add the bias of each place's member, in one pass."""
    members, channels = bias.shape
    values = values.view(members, -1, 1, channels)
    shape = (members, values.shape[1], -1, channels)
    return torch.addcmul(bias.view(members, 1, 1, channels), x.view(shape), values, out=out.view(shape))


class _ScaledLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, *parts: Tensor | None) -> Tensor:
        s, r = side_of(*parts[:3]), side_of(*parts[3:])
        z = places = x.reshape(-1, x.shape[-1])
        # The output is no view of anything, or nobody could change it in place.
        y = x.new_empty((*x.shape[:-1], weight.shape[0]))
        outputs, product = y.view(len(places), -1), None
        if s is not None:
            z = _times(places, _values(s), scratch("input", places))
        if r is None:
            torch.mm(z, weight.T, out=outputs)
            if bias is not None:
                outputs.view(bias.shape[0], -1, outputs.shape[1]).add_(bias.unsqueeze(1))
        else:
            product = z @ weight.T
            _times(product, _values(r), outputs) if bias is None else _times_plus(product, _values(r), bias, outputs)
        trained = any(ctx.needs_input_grad[6:])
        ctx.save_for_backward(x, weight, bias, product if trained else None, *parts)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, product, *parts = ctx.saved_tensors
        if autograd_wanted(grad):
            return gradients_by_autograd(_plain, (x, weight, bias, *parts), [grad])
        needs_x, needs_weight, needs_bias, *needs = ctx.needs_input_grad
        needs_s, needs_r = any(needs[:3]), any(needs[3:])
        s, r = side_of(*parts[:3]), side_of(*parts[3:])
        places, grad = x.reshape(-1, x.shape[-1]), grad.reshape(-1, weight.shape[0])
        of_bias = grad.view(bias.shape[0], -1, grad.shape[1]).sum(1) if needs_bias else None
        of_x: Tensor | None = None
        of_weight: Tensor | None = None
        of_s: tuple[Tensor | None, ...] = (None, None, None)
        of_r = of_s
        if r is not None:
            buffer = scratch("output", grad)
            of_r = _gradients(r, grad, product, buffer) if needs_r else of_r
            grad = _times(grad, _values(r), buffer)
        if needs_s and isinstance(s, Tensor) and (by_weight := _cheaper_by_weight(places, weight, s, needs_x)):
            of_weight, of_groups = by_weight(grad, places, weight, s)
            of_x = _times(grad @ weight, s).view(x.shape) if needs_x else None
            return of_x, of_weight if needs_weight else None, of_bias, of_groups, None, None, *of_r
        if needs_x or needs_s:
            of_x = grad @ weight
        z = places
        if s is not None:
            z = scratch("input", places)
            of_s = _gradients(s, of_x, places, z) if needs_s and of_x is not None else of_s
            values = _values(s)
            z = _times(places, values, z)
            of_x = _times(of_x, values, of_x) if needs_x and of_x is not None else None
        if needs_weight:
            of_weight = grad.T @ z
        return None if of_x is None else of_x.view(x.shape), of_weight, of_bias, *of_s, *of_r


def _cheaper_by_weight(places: Tensor, weight: Tensor, s: Tensor, needs_x: bool) -> Any:
    """Return what takes the gradient of s from the weight's, or None where it comes cheaper from that of x."""
    groups, rows = s.shape[0], places.shape[0]
    if groups * weight.shape[0] * FEWER_OUTPUTS <= rows:
        return _by_small_weights
    return _by_weight if not needs_x and rows >= LEAST_ROWS_BY_WEIGHT * groups else None


def _by_small_weights(grad: Tensor, places: Tensor, weight: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Return what ``_by_weight`` does, for all groups at once: no pass over x, for a layer of few outputs."""
    groups = s.shape[0]
    own = torch.bmm(grad.view(groups, -1, grad.shape[1]).mT, places.view(groups, -1, places.shape[1]))
    return (own * s.unsqueeze(1)).sum(0), (own * weight).sum(1)


def _by_weight(grad: Tensor, places: Tensor, weight: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the gradients of the weight and of s where x needs none: a product fewer, for the layer in front.

    With :math:`N_k = g_k^\top x_k` over the rows of group k: :math:`\partial W = \sum_k N_k \circ s_k` and
    :math:`\partial s_k = \sum_o W_o \circ N_{ko}`. Some outputs at a time, which stay in the processor's cache from one
    operation to the next.
    """
    groups, (outputs, inputs) = len(s), weight.shape
    step = max(1, CACHED_ELEMENTS // inputs)
    of_weight = torch.empty_like(weight)
    sums = s.new_empty(-(-outputs // step), groups, inputs)
    blocks = zip(weight.split(step), of_weight.split(step), grad.split(step, 1), sums, strict=True)
    for some, total, slopes, of_groups in blocks:
        own, product = scratch("weight", some), scratch("weights", some)
        for i, (mine, rows) in enumerate(zip(slopes.chunk(groups), places.chunk(groups), strict=True)):
            torch.mm(mine.T, rows, out=own)
            torch.sum(torch.mul(own, some, out=product), 0, out=of_groups[i])
            if i:
                total.addcmul_(own, s[i])
            else:
                torch.mul(own, s[i], out=total)
    return of_weight, sums.sum(0)
