"""The passes over rows that a layer between two factors makes: one compiled kernel each, or torch's operations."""

from typing import Any

import torch
from torch import Tensor

from slimbayes.layers import torch_passes
from slimbayes.layers.flips import Flipped, Side
from slimbayes.layers.scratch import WITH_MEMORY
from slimbayes.layers.torch_passes import LEAST_BESIDE_BIAS, LEAST_DIVISOR, NOTHING, SMALLEST_FACTOR, Slopes
from slimbayes.native import kernel

__all__ = [
    "NOTHING",
    "Slopes",
    "described",
    "fits",
    "is_known",
    "kernel_for",
    "rectified_back",
    "scale",
    "scale_back",
    "weight_back",
]

#: Of more elements, torch's threads are quicker together than one that does everything in a pass.
MOST_FOR_ONE_THREAD = 2**17


def scale(x: Tensor, side: Tensor | Flipped, bias: Tensor | None, out: Tensor) -> Tensor:
    r"""Write :math:`x \circ v + b` into ``out``, each group of rows with its own values and bias.

    Args:
        x: ``(places, channels)``, those of a row together; or images ``(rows, channels, *)``.
        side: The values, ``(groups, channels)`` or ``Flipped``.
        bias: ``(members, channels)`` or None.
        out: Memory like that of x, or x itself.

    Example:
        >>> x, values = torch.ones(4, 1), torch.tensor([[2.0], [3]])
        >>> scale(x, values, torch.tensor([[10.0]]), torch.empty(4, 1))[:, 0]
        tensor([12., 12., 13., 13.])
    """
    run = kernel_for("scale", x, side)
    if run is None or not _lies_alike(x, out) or not fits(bias, side):
        return torch_passes.scale(x, side, bias, out)
    run(x.data_ptr(), *described(side, x), _address(bias), 1 if bias is None else bias.shape[0], out.data_ptr())
    return out


def scale_back(
    grad: Tensor,
    factor: Tensor | None,
    side: Tensor | Flipped,
    of_factor: Tensor | None = None,
    scaled: Tensor | None = None,
    sums: bool = True,
    biases: int = 0,
    divided: bool = False,
) -> Slopes | None:
    r"""Go back through :math:`y = x \circ v + b`.

    Args:
        grad: Of y, in the shape of x.
        factor: x; None if neither ``sums`` nor ``scaled`` are wanted.
        side: The values v.
        of_factor: Memory for the gradient of x, which may be that of ``grad``; None if it is not wanted.
        scaled: Memory for :math:`x \circ v`; None if it is not wanted.
        sums: Whether the gradients of the side's parts are.
        biases: Members of the bias whose gradient is wanted; 0 for none.
        divided: ``factor`` is y, of a pass without a bias, from which x follows. ``of_factor`` is then other memory.

    Returns:
        The gradients; None where x does not follow from y, because a value is nearly zero.

    Example:
        >>> x, values, grad = torch.tensor([[1.0], [2]]), torch.tensor([[3.0]]), torch.ones(2, 1)
        >>> of_x = torch.empty(2, 1)
        >>> scale_back(grad, x, values, of_factor=of_x, biases=1), of_x.flatten()
        (Slopes(side=(tensor([[3.]]), None, None), bias=tensor([[2.]])), tensor([3., 3.]))
    """
    run = kernel_for("scale_back", grad, side)
    others = (factor, of_factor, scaled)
    if run is None or not all(one is None or _lies_alike(grad, one) for one in others) or not _divides(biases, side):
        return torch_passes.scale_back(grad, factor, side, of_factor, scaled, sums, biases, divided)
    loc, deviation = (side.loc, side.deviation) if isinstance(side, Flipped) else (side, None)
    of_loc = torch.empty_like(loc) if sums else None
    of_deviation = loc.new_empty(deviation.shape) if sums and deviation is not None else None
    of_bias = loc.new_empty(biases, loc.shape[1]) if biases else None
    small = run(
        grad.data_ptr(),
        _address(factor),
        *described(side, grad),
        _address(of_factor),
        _address(scaled),
        _address(of_loc),
        _address(of_deviation),
        _address(of_bias),
        biases or 1,
        SMALLEST_FACTOR if divided else 0.0,
    )
    return None if small else Slopes((of_loc, of_deviation, None) if sums else NOTHING, of_bias)


def rectified_back(
    grad: Tensor, rectified: Tensor, side: Tensor | Flipped, bias: Tensor | None, of_factor: Tensor, biases: int = 0
) -> tuple[Slopes, Tensor] | None:
    r"""Do what ``scale_back`` does where a ReLU has left :math:`\max(x \circ v + b, 0)` alone of x.

    Where that is positive, :math:`x = (y - b) / v`; where it is zero, so is the gradient.

    Args:
        grad: Of y.
        rectified: What the ReLU has made of y.
        side: The values v.
        bias: b or None.
        of_factor: Memory for the gradient of x.
        biases: Members of the bias whose gradient is wanted; 0 for none.

    Returns:
        The gradients, and those channels, ``(number,)``, whose values' gradients are not to be used because a value is
        nearly zero, in itself or beside the bias. None where y has met something else than the ReLU, too.

    Example:
        >>> y, values = torch.tensor([[6.0, 0], [-1, 2]]), torch.tensor([[3.0, 0]])
        >>> slopes, doubtful = rectified_back((y > 0).float(), y.relu(), values, None, torch.empty(2, 2))
        >>> slopes.side[0][0, 0], doubtful
        (tensor(2.), tensor([1]))
    """
    run = kernel_for("rectified_back", grad, side)
    lie_alike = _lies_alike(grad, rectified) and _lies_alike(grad, of_factor)
    if run is None or not (lie_alike and _divides(biases, side) and fits(bias, side)):
        return torch_passes.rectified_back(grad, rectified, side, bias, of_factor, biases)
    loc, deviation = (side.loc, side.deviation) if isinstance(side, Flipped) else (side, None)
    of_loc = torch.empty_like(loc)
    of_deviation = None if deviation is None else loc.new_empty(deviation.shape)
    of_bias = loc.new_empty(biases, loc.shape[1]) if biases else None
    doubtful = torch.empty(loc.shape[1], dtype=torch.bool, device="cpu")
    fails = run(
        grad.data_ptr(),
        rectified.data_ptr(),
        _address(bias),
        *described(side, grad),
        of_factor.data_ptr(),
        of_loc.data_ptr(),
        _address(of_deviation),
        _address(of_bias),
        biases or (1 if bias is None else bias.shape[0]),
        LEAST_DIVISOR,
        LEAST_BESIDE_BIAS,
        doubtful.data_ptr(),
    )
    return None if fails else (Slopes((of_loc, of_deviation, None), of_bias), doubtful.nonzero().flatten())


def _address(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()


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
    r"""Take the gradients of one group of rows from N, that of a weight without factors; with :math:`T = W \circ N`.

    Args:
        own: N, ``(out, in)``.
        weight: W.
        s: ``(in,)``.
        r: ``(out,)``; None for ones.
        total: Gets :math:`N \circ r s^\top` added to it, or if ``first`` written over it.
        of_s: Gets :math:`T^\top r` added to it.
        of_r: Gets :math:`T s`; None if there is no r.
        first: Whether nothing is in ``total`` yet.

    Example:
        >>> own, weight = torch.tensor([[1.0, 2]]), torch.tensor([[3.0, 4]])
        >>> total, of_s, of_r = torch.empty(1, 2), torch.zeros(2), torch.empty(1)
        >>> weight_back(own, weight, torch.tensor([1.0, 10]), torch.tensor([2.0]), total, of_s, of_r, first=True)
        >>> total, of_s, of_r
        (tensor([[ 2., 40.]]), tensor([ 6., 16.]), tensor([83.]))
    """
    run = kernel("weight_back", own.dtype)
    everything = (own, weight, s, r, total, of_s, of_r)
    if run is None or not all(one is None or one.is_contiguous() for one in everything):
        return torch_passes.weight_back(*everything, first)
    return run(*map(_address, everything), *own.shape, first)


def kernel_for(name: str, x: Tensor, side: Tensor | Flipped) -> Any:
    """Return the compiled kernel if it knows how x and the side lie in memory."""
    run = kernel(name, x.dtype)
    if run is None or type(x) not in WITH_MEMORY or not _channels_lie_last(x):
        return None
    if x.numel() > MOST_FOR_ONE_THREAD and torch.get_num_threads() > 1:
        return None
    return run if is_known(side) else None


def is_known(side: Side) -> bool:
    """Tell whether kernels know how the values lie in memory."""
    if isinstance(side, Flipped):
        rows_lie_together = side.deviation.stride(1) == 1 == side.signs.stride(1)
        return side.loc.is_contiguous() and rows_lie_together and side.signs.dtype is torch.int8
    return side is None or side.is_contiguous()


def _channels_lie_last(x: Tensor) -> bool:
    if x.dim() == 2:
        return x.is_contiguous()
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    return last is not None and x.is_contiguous(memory_format=last)


def _lies_alike(x: Tensor, other: Tensor) -> bool:
    # Where an axis has one entry, strides differ that make no difference.
    return x.stride() == other.stride() or _channels_lie_last(other)


def _divides(biases: int, side: Tensor | Flipped) -> bool:
    rows = side.rows if isinstance(side, Flipped) else side.shape[0]
    return biases == 0 or rows % biases == 0


def fits(bias: Tensor | None, side: Tensor | Flipped) -> bool:
    """Tell whether kernels know how the biases lie in memory, and which rows have them."""
    if bias is None:
        return True
    loc = side.loc if isinstance(side, Flipped) else side
    return bias.is_contiguous() and bias.dtype is loc.dtype and _divides(bias.shape[0], side)


def described(side: Tensor | Flipped, x: Tensor) -> tuple[int | None, ...]:
    """Return a side as the kernels take it: addresses, strides, members, draws, rows of a draw, places, channels."""
    channels = x.shape[1]
    places = x.numel() // channels
    if isinstance(side, Tensor):
        groups = side.shape[0]
        return side.data_ptr(), None, 0, None, 0, groups, groups, 1, places // groups, channels
    loc, deviation, signs = side.loc, side.deviation, side.signs
    draws, share = deviation.shape[0], signs.shape[0]
    return (
        loc.data_ptr(),
        deviation.data_ptr(),
        deviation.stride(0),
        signs.data_ptr(),
        signs.stride(0),
        loc.shape[0],
        draws,
        share,
        places // (draws * share),
        channels,
    )
