"""The passes of ``layers.passes`` in torch's operations, for what the compiled kernels do not know."""

from typing import NamedTuple

import torch
from torch import Tensor

from slimbayes.layers.flips import Flipped
from slimbayes.layers.scratch import scratch

__all__ = [
    "LEAST_BESIDE_BIAS",
    "LEAST_DIVISOR",
    "NOTHING",
    "SMALLEST_FACTOR",
    "Slopes",
    "rectified_back",
    "scale",
    "scale_back",
    "weight_back",
]

#: A factor this small could lose digits of what it multiplies.
SMALLEST_FACTOR = 1e-12
#: The same where a bias was added to the product, and beside that bias.
LEAST_DIVISOR = 1e-6
LEAST_BESIDE_BIAS = 1e-3
#: As many fit into a core's cache together with what they are made of.
CACHED_ELEMENTS = 2**18
#: The gradients of a side that needs none.
NOTHING: tuple[Tensor | None, ...] = (None, None, None)


class Slopes(NamedTuple):
    """What the parameters of a pass get.

    Attributes:
        side: The gradients of the parts of a side.
        bias: The gradient of the bias, ``(members, channels)``, or None.
    """

    side: tuple[Tensor | None, ...]
    bias: Tensor | None


def scale(x: Tensor, side: Tensor | Flipped, bias: Tensor | None, out: Tensor) -> Tensor:
    """See ``passes.scale``."""
    values = _values(side)
    if bias is None:
        torch.mul(_by_group(x, values), _for_groups(values, x), out=_by_group(out, values))
        return out
    members = bias.shape[0]
    if values.shape[0] % members:  # one vector for all members
        values = values.repeat_interleave(members, 0)
    shape = (members, values.shape[0] // members, -1, *x.shape[1:])
    ones = [1] * (x.dim() - 2)
    values = values.view(*shape[:2], 1, -1, *ones)
    torch.addcmul(bias.view(members, 1, 1, -1, *ones), x.view(shape), values, out=out.view(shape))
    return out


def scale_back(
    grad: Tensor,
    factor: Tensor | None,
    side: Tensor | Flipped,
    of_factor: Tensor | None,
    scaled: Tensor | None,
    sums: bool,
    biases: int,
    divided: bool,
) -> Slopes | None:
    """See ``passes.scale_back``."""
    positions = tuple(range(2, grad.dim()))
    of_bias, of_side = None, NOTHING
    if biases:
        summed = grad.sum(positions) if positions else grad
        of_bias = summed.view(biases, -1, grad.shape[1]).sum(1)
    values = _values(side)
    if sums:
        assert factor is not None
        if divided and not bool((values.abs() > SMALLEST_FACTOR).all()):
            return None
        slopes = _row_sums(grad, factor, positions)
        of_values = slopes.view(values.shape[0], -1, grad.shape[1]).sum(1) if len(slopes) > len(values) else slopes
        if divided:
            of_values = of_values / values
        of_side = (*side.gradients(of_values), None) if isinstance(side, Flipped) else (of_values, None, None)
    if scaled is not None:
        assert factor is not None
        torch.mul(_by_group(factor, values), _for_groups(values, factor), out=_by_group(scaled, values))
    if of_factor is not None:
        torch.mul(_by_group(grad, values), _for_groups(values, grad), out=_by_group(of_factor, values))
    return Slopes(of_side, of_bias)


def rectified_back(
    grad: Tensor, rectified: Tensor, side: Tensor | Flipped, bias: Tensor | None, of_factor: Tensor, biases: int
) -> tuple[Slopes, Tensor] | None:
    """See ``passes.rectified_back``."""
    positive = rectified > 0
    if bool(((grad != 0) & ~positive).any()):
        return None
    values, channels = _values(side), grad.shape[1]
    shift = grad.new_zeros(1, channels) if bias is None else bias
    each = values.abs().view(len(shift), -1, channels) if len(values) % len(shift) == 0 else values.abs().unsqueeze(0)
    enough = (each > LEAST_DIVISOR) & (each > LEAST_BESIDE_BIAS * shift.abs().unsqueeze(1))
    shifted = (rectified.view(len(shift), -1, channels) - shift.unsqueeze(1)).view(grad.shape)
    factor = (_by_group(shifted, values) / _for_groups(values, grad)).view(grad.shape).where(positive, 0.0)
    slopes = scale_back(grad, factor, side, of_factor, None, True, biases, False)
    assert slopes is not None
    return slopes, (~enough).flatten(0, 1).any(0).nonzero().flatten()


def weight_back(
    own: Tensor,
    weight: Tensor,
    s: Tensor,
    r: Tensor | None,
    total: Tensor,
    of_s: Tensor,
    of_r: Tensor | None,
    first: bool,
) -> None:
    """See ``passes.weight_back``."""
    products = own * weight
    if of_r is not None:
        torch.mv(products, s, out=of_r)
    of_s += products.sum(0) if r is None else r @ products
    scaled = own if r is None else own * r.unsqueeze(1)
    if first:
        torch.mul(scaled, s, out=total)
    else:
        total.addcmul_(scaled, s)


def _row_sums(grad: Tensor, factor: Tensor, positions: tuple[int, ...]) -> Tensor:
    """Return grad * factor summed over the positions of each row: some rows at a time, which stay in the cache."""
    if not positions:
        return grad * factor
    rows = grad.shape[0]
    step = max(1, min(rows, CACHED_ELEMENTS * rows // grad.numel()))
    sums, buffer = grad.new_empty(grad.shape[:2]), scratch("products", grad[:step])
    for slopes, others, own in zip(grad.split(step), factor.split(step), sums.split(step), strict=True):
        torch.sum(torch.mul(slopes, others, out=buffer[: len(slopes)]), positions, out=own)
    return sums


def _values(side: Tensor | Flipped) -> Tensor:
    """Return values ``(groups, channels)``; those of each row are there until the next call."""
    if isinstance(side, Tensor):
        return side
    return side.values(out=scratch("values", side.loc, side.rows, side.loc.shape[1]))


def _by_group(x: Tensor, values: Tensor) -> Tensor:
    """View rows as ``(groups, rows of a group, channels, *)``."""
    return x.view(values.shape[0], -1, *x.shape[1:])


def _for_groups(values: Tensor, x: Tensor) -> Tensor:
    return values.view(values.shape[0], 1, -1, *[1] * (x.dim() - 2))
