"""A dense layer between an input and an output factor as one operation, with its own gradients."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from slimbayes.layers.flips import Flipped, Side, parts_of, side_of
from slimbayes.layers.own_gradients import autograd_wanted, gradients_by_autograd
from slimbayes.layers.passes import NOTHING, Slopes, rectified_back, scale, scale_back, weight_back
from slimbayes.layers.products import groups_back, product, turned_product
from slimbayes.layers.scratch import scratch

__all__ = ["scaled_linear"]

#: From so many rows of a group on, the gradients of factors come cheaper from the weight's.
LEAST_ROWS_BY_WEIGHT = 48
#: What autograd calls a ReLU.
RELU: Any = type(torch.zeros(1, requires_grad=True).relu().grad_fn)


def scaled_linear(x: Tensor, weight: Tensor, bias: Tensor | None, s: Side, r: Side) -> Tensor:
    r"""Return :math:`((x \circ s) W^\top) \circ r + b` (Eq. 1), each group of rows with its own s, r and b.

    The same in plain operations is ``perturb``. This one keeps x and the output of the product for the backward pass
    (of the latter, if a ReLU follows, what the ReLU keeps), computes :math:`x \circ s` again, works in place, and never
    stores a factor's values for each row.

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
    if not torch.is_grad_enabled():
        return _forward(x, weight, bias, s, r, keep=False)[0]
    _drop_what_a_relu_keeps(x)
    y: Tensor = _ScaledLinear.apply(x, weight, bias, *parts_of(s), *parts_of(r))
    return y


def _forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, s: Side, r: Side, keep: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the output and, to ``keep``, the product of the scaled input and the weight behind which r stands."""
    z = places = x.reshape(-1, x.shape[-1])
    # The output is no view of anything, or nobody could change it in place.
    y = x.new_empty((*x.shape[:-1], weight.shape[0]))
    outputs = y.view(len(places), -1)
    if s is not None:
        z = scale(places, s, None, scratch("input", places))
    if r is not None:
        between = product(z, weight, turned=True, out=None if keep else outputs)
        scale(between, r, bias, outputs)
        return y, between if keep else None
    product(z, weight, turned=True, out=outputs)
    if bias is not None:
        outputs.view(bias.shape[0], -1, outputs.shape[1]).add_(bias.unsqueeze(1))
    return y, None


def _plain(x: Tensor, weight: Tensor, bias: Tensor | None, *parts: Tensor | None) -> Tensor:
    s, r = (side.values() if isinstance(side, Flipped) else side for side in (side_of(*parts[:3]), side_of(*parts[3:])))
    y = F.linear(x if s is None else _by_group(x, s) * s.unsqueeze(1), weight)
    y = y if r is None else _by_group(y, r) * r.unsqueeze(1)
    y = y if bias is None else _by_group(y, bias) + bias.unsqueeze(1)
    return y.reshape(*x.shape[:-1], -1)


def _by_group(x: Tensor, values: Tensor) -> Tensor:
    """View rows as ``(groups, rows of a group, channels)``, for values ``(groups, channels)``."""
    return x.reshape(values.shape[0], -1, x.shape[-1])


class _ScaledLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, *parts: Tensor | None) -> Tensor:
        s, r = side_of(*parts[:3]), side_of(*parts[3:])
        needs_x, *_ = ctx.needs_input_grad
        ctx.by_weight = not needs_x and any(ctx.needs_input_grad[3:]) and _cheaper_by_weight(x, s, r)
        trained = any(ctx.needs_input_grad[6:])
        # Not among the saved tensors, which nobody could drop when a ReLU turns out to have kept enough of it.
        y, ctx.between = _forward(x, weight, bias, s, r, keep=trained and not ctx.by_weight)
        ctx.rectified = None
        ctx.save_for_backward(x, weight, bias, *parts)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, *parts = ctx.saved_tensors
        if autograd_wanted(grad):
            return gradients_by_autograd(_plain, (x, weight, bias, *parts), [grad])
        needs_x, needs_weight, needs_bias, *needs = ctx.needs_input_grad
        needs_s, needs_r = any(needs[:3]), any(needs[3:])
        s, r = side_of(*parts[:3]), side_of(*parts[3:])
        places, grad = x.reshape(-1, x.shape[-1]), grad.reshape(-1, weight.shape[0]).contiguous()
        biases = bias.shape[0] if needs_bias else 0
        of_x: Tensor | None = None
        of_weight: Tensor | None = None
        of_s, of_r = NOTHING, NOTHING
        of_bias = grad.view(biases, -1, grad.shape[1]).sum(1) if biases and (r is None or ctx.by_weight) else None
        if ctx.by_weight:
            assert isinstance(s, Tensor)
            assert not isinstance(r, Flipped)
            of_weight, *of_sides = _by_weight(grad, places, weight, s, r)
            of_s, of_r = ((of_side, None, None) for of_side in of_sides)
            return None, of_weight if needs_weight else None, of_bias, *of_s, *of_r
        if r is not None:
            before = scratch("output", grad)
            of_r, of_bias = _through_r(ctx, grad, places, weight, bias, s, r, before, needs_r, biases)
            grad = before
        if needs_x or needs_s:
            of_x = product(grad, weight)
        z = places
        if s is not None:
            z = scratch("input", places)
            if of_x is None:
                scale(places, s, None, z)
            else:
                slopes = scale_back(of_x, places, s, of_x if needs_x else None, z, sums=needs_s)
                assert slopes is not None
                of_s = slopes.side
        if needs_weight:
            of_weight = turned_product(grad, z)
        of_x = of_x.view(x.shape) if needs_x and of_x is not None else None
        return of_x, of_weight if needs_weight else None, of_bias, *of_s, *of_r


def _through_r(
    ctx: Any,
    grad: Tensor,
    places: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    s: Side,
    r: Tensor | Flipped,
    before: Tensor,
    needs_r: bool,
    biases: int,
) -> Slopes:
    """Go back through the output factor: from the product, what a ReLU has kept of it, or the product once more."""
    between, rectified = ctx.between, ctx.rectified
    ctx.between = ctx.rectified = None  # what holds the graph, such as a loss, is not to hold these
    slopes: Slopes | None = None
    if needs_r and between is None:
        if rectified is not None and rectified[0]._version == rectified[1]:
            found = rectified_back(grad, rectified[0].view(grad.shape), r, bias, before, biases)
            if found is not None:
                slopes, doubtful = found
                if len(doubtful):
                    _mend(slopes, doubtful, grad, places, weight, s, r)
        if slopes is None:
            z = places if s is None else scale(places, s, None, scratch("input", places))
            between = product(z, weight, turned=True)
    if slopes is None:
        slopes = scale_back(grad, between, r, of_factor=before, sums=needs_r, biases=biases)
    assert slopes is not None
    return slopes


def _mend(
    slopes: Slopes, channels: Tensor, grad: Tensor, places: Tensor, weight: Tensor, s: Side, r: Tensor | Flipped
) -> None:
    """Take the gradients of some channels of r from their products, made once more."""
    z = places if s is None else scale(places, s, None, scratch("input", places))
    some: Tensor | Flipped
    if isinstance(r, Tensor):
        some = r[:, channels]
    else:
        some = Flipped(r.loc[:, channels], r.deviation[:, channels], r.signs[:, channels])
    exact = scale_back(grad[:, channels], z @ weight[channels].T, some)
    assert exact is not None
    for of_part, of_some in zip(slopes.side, exact.side, strict=True):
        if of_part is not None and of_some is not None:
            of_part[:, channels] = of_some


def _drop_what_a_relu_keeps(x: Tensor) -> None:
    """Tell the layer that x comes from, if a ReLU is all that is between, to do without its product.

    Both the ReLU and the layer that is given x keep x for the backward pass.
    """
    node: Any = x.grad_fn
    if type(node) is RELU:
        layer = node.next_functions[0][0]
        if isinstance(layer, _ScaledLinear._backward_cls) and layer.between is not None:
            layer.between, layer.rectified = None, (x.detach(), x._version)


def _cheaper_by_weight(x: Tensor, s: Side, r: Side) -> bool:
    """Tell whether groups are large enough to take the gradients of their factors from those of their weights."""
    if not isinstance(s, Tensor) or not (r is None or (isinstance(r, Tensor) and len(r) == len(s))):
        return False
    return x.numel() // x.shape[-1] >= LEAST_ROWS_BY_WEIGHT * len(s)


def _by_weight(
    grad: Tensor, places: Tensor, weight: Tensor, s: Tensor, r: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of the weight, s and r where x needs none: a product fewer, for the layer in front.

    The formulas are in ``groups_back``; without that kernel, the weight of each group goes through memory.
    """
    found = groups_back(grad, places, weight, s, r)
    if found is not None:
        return found
    of_weight, of_s = torch.empty_like(weight), torch.zeros_like(s)
    of_r = None if r is None else torch.empty_like(r)
    own = scratch("weight", weight)
    nothing = (None,) * len(s)
    sides = zip(s, nothing if r is None else r, of_s, nothing if of_r is None else of_r, strict=True)
    groups = zip(grad.chunk(len(s)), places.chunk(len(s)), sides, strict=True)
    for i, (slopes, rows, (before, behind, of_before, of_behind)) in enumerate(groups):
        torch.mm(slopes.T, rows, out=own)
        weight_back(own, weight, before, behind, of_weight, of_before, of_behind, first=i == 0)
    return of_weight, of_s, of_r
