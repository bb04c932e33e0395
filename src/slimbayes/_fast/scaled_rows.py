"""y = x ∘ v + b for groups of rows: one pass over memory forward, one backward, by a compiled kernel.

Autograd needs a product and a sum for each of x, v and b.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from slimbayes._fast.guards import autograd_wanted, gradients_by_autograd, ordinary
from slimbayes._fast.library import kernel
from slimbayes._fast.row_noise import SignedNoise

#: Of more elements, several threads of torch are quicker than this one.
MOST_FOR_ONE_THREAD = 2**17


#: Loc, deviation and bits of ``SignedNoise``, or values alone.
Parts = tuple[Tensor, Tensor | None, Tensor | None]


class Layout(NamedTuple):
    """What a kernel must know of x: ``native/rows.inc`` says what each means."""

    members: int
    draws: int
    rows_of_a_draw: int
    positions: int
    channels: int
    planes: bool


def scale_rows(x: Tensor, values: Tensor | SignedNoise, bias: Tensor | None, axis: int, channel_dim: int) -> Any:
    r"""Return :math:`x \circ v + b`, or None if this is not something the kernel knows.

    Args:
        x: Rows on ``axis``, channels on ``channel_dim``; float32, float64 or bfloat16.
        values: ``(groups, channels)``, each for a group of consecutive rows; or ``SignedNoise``.
        bias: ``(members, channels)``, each for a group of consecutive rows, or None.
        axis: Axis of the rows.
        channel_dim: Axis of the channels.

    Example:
        >>> x, values = torch.ones(4, 1), torch.tensor([[2.0], [3]])
        >>> y = scale_rows(x, values, torch.tensor([[10.0]]), 0, 1)
        >>> y is None or y[:, 0].tolist() == [12.0, 12.0, 13.0, 13.0]
        True
    """
    found = prepared(x, values, bias, axis)
    if found is None or too_large(x):
        return None
    parts, bias = found
    channel_dim %= x.dim()
    layout = layout_of(x, parts, bias, channel_dim)
    if layout is None:
        return None
    try:
        return _ScaleRows.apply(x, bias, layout, channel_dim, *parts)
    except RuntimeError:  # torch.func is at work, and wants operations of another form
        return None


def prepared(
    x: Tensor, values: Tensor | SignedNoise, bias: Tensor | None, axis: int
) -> tuple[Parts, Tensor | None] | None:
    """Return the parts of the values and the bias, beside bfloat16 in float32; None if not all are plain tensors."""
    parts: Parts = values.parts() if isinstance(values, SignedNoise) else (values, None, None)
    if axis or kernel("scale", x.dtype) is None or not ordinary(x, bias, *parts):
        return None
    if x.dtype is torch.bfloat16:  # factors have more digits than what they scale
        parts = (parts[0].float(), *parts[1:])
        bias = None if bias is None else bias.float()
    return parts, bias


def too_large(x: Tensor) -> bool:
    """Tell whether several threads of torch are quicker than this one."""
    return x.numel() > MOST_FOR_ONE_THREAD and torch.get_num_threads() > 1


def layout_of(x: Tensor, parts: Parts, bias: Tensor | None, channel_dim: int) -> Layout | None:
    """Return how x lies in memory; None if types, shapes or strides are not those that the kernels take.

    Nothing passes a pointer to a kernel that has not been here, in the backward pass too: hooks may have changed what
    was saved for it.
    """
    planes = channel_dim != x.dim() - 1
    if planes and channel_dim != 1:
        return None
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim()) if planes else None
    if last is not None and x.is_contiguous(memory_format=last):
        planes = False
    elif not x.is_contiguous():
        return None
    rows, channels = x.shape[0], x.shape[channel_dim]
    if not tables_fit(rows, channels, x.dtype, parts, bias):
        return None
    draws = len(parts[0] if parts[1] is None else parts[1])
    return Layout(len(parts[0]), draws, rows // draws, x.numel() // (rows * channels), channels, planes)


def tables_fit(rows: int, channels: int, dtype: torch.dtype, parts: Parts, bias: Tensor | None) -> bool:
    """Tell whether types, shapes and strides of values and bias are those that the kernels take beside such an x."""
    loc, deviation, bits = parts
    draws = len(loc)
    if not rows * channels:
        return False
    if deviation is not None and bits is not None:
        draws = len(deviation)
        if bits.dtype is not torch.uint8 or bits.shape != (rows, -(-channels // 8)) or not bits.is_contiguous():
            return False
    if rows % draws or draws % len(loc) or (bias is not None and rows % len(bias)):
        return False
    real = torch.float64 if dtype is torch.float64 else torch.float32
    return all(
        table is None or (table.dtype is real and table.shape[1:] == (channels,) and table.is_contiguous())
        for table in (loc, deviation, bias)
    )


def _address(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()


def scaled(x: Tensor, parts: Parts, bias: Tensor | None, layout: Layout) -> Tensor:
    """Return x ∘ v + b; ``layout_of`` these tensors has been found."""
    y = torch.empty_like(x)
    biases = 1 if bias is None else len(bias)
    kernel("scale", x.dtype)(x.data_ptr(), *map(_address, parts), *layout, _address(bias), biases, y.data_ptr())
    return y


def scaled_back(
    grad: Tensor, x: Tensor, parts: Parts, bias: Tensor | None, layout: Layout, of_x: Tensor | None, sums: bool
) -> tuple[Tensor | None, ...]:
    """Go back through ``scaled``; ``layout_of`` these tensors has been found.

    Args:
        grad: Of the result, lying in memory as x does.
        x: What was scaled.
        parts: Of the values.
        bias: b.
        layout: Of x.
        of_x: Where the gradient of x goes, which may be ``grad`` itself; None if it is not wanted.
        sums: Whether the gradients of the values are wanted.

    Returns:
        The gradients of loc, deviation and bias; None for what is not there or not wanted.
    """
    loc, deviation, _ = parts
    of_loc = torch.empty_like(loc) if sums else None
    of_deviation = torch.empty_like(deviation) if sums and deviation is not None else None
    of_bias = None if bias is None else torch.empty_like(bias)
    kernel("scale_back", x.dtype)(
        grad.data_ptr(),
        x.data_ptr(),
        *map(_address, parts),
        *layout,
        *map(_address, (of_x, of_loc, of_deviation, of_bias)),
        1 if bias is None else len(bias),
    )
    return of_loc, of_deviation, of_bias


class _ScaleRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, layout: Layout, channel_dim: int, *parts: Any) -> Tensor:
        ctx.channel_dim = channel_dim
        ctx.save_for_backward(x, bias, *parts)
        return scaled(x, parts, bias, layout)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, bias, *parts = ctx.saved_tensors
        layout = layout_of(x, parts, bias, ctx.channel_dim)
        if layout is None or autograd_wanted(grad):
            of_x, of_bias, _, *of_parts = gradients_by_autograd(
                plain_scaled, (x, bias, ctx.channel_dim, *parts), [grad]
            )
            return of_x, of_bias, None, None, *of_parts
        needs_x, needs_bias, _, _, *needs = ctx.needs_input_grad
        grad = lying_as(grad, x)
        of_x = torch.empty_like(x) if needs_x else None
        of_loc, of_deviation, of_bias = scaled_back(grad, x, parts, bias, layout, of_x=of_x, sums=any(needs))
        return of_x, of_bias if needs_bias else None, None, None, of_loc, of_deviation, None


def lying_as(grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient in the type and memory format of x, whose shape it has."""
    same = grad.dtype is x.dtype and grad.shape == x.shape and grad.stride() == x.stride()
    return grad if same else torch.empty_like(x).copy_(grad)


def plain_scaled(x: Tensor, bias: Tensor | None, channel_dim: int, *parts: Any) -> Tensor:
    """Return the same in operations that autograd knows."""
    loc, deviation, bits = parts
    values = loc if deviation is None or bits is None else SignedNoise(loc, deviation, bits).values()

    def for_rows(table: Tensor) -> Tensor:
        shape = [1] * x.dim()
        shape[0], shape[channel_dim] = len(x), x.shape[channel_dim]
        rows = table.unsqueeze(1).expand(-1, len(x) // len(table), -1)
        return rows.reshape(shape)

    y = x * for_rows(values)
    return (y if bias is None else y + for_rows(bias)).to(x.dtype)
