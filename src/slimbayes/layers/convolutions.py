"""Convolutions between two factors in one compiled kernel, where its passes over memory are what costs."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from slimbayes.layers.flips import Side
from slimbayes.layers.geometry import Geometry
from slimbayes.layers.passes import described, fits, is_known
from slimbayes.layers.scratch import WITH_MEMORY, scratch
from slimbayes.native import integers, kernel

__all__ = ["whole_conv"]

#: Vectors of the widest kind hold so many numbers; the kernel wants whole ones of output channels.
LANES = 16
#: With more products for each element of input and output, the two passes that are saved are nothing.
MOST_PRODUCTS = 300
#: Nor are they worth more products with zeros of the padding, which torch leaves out.
MOST_WITH_PADDING = 20
#: What a kernel and its input take of a processor's second cache.
MOST_ELEMENTS = 2**17
NO_SIDE = (None, None, 0, None, 0, 1, 1, 1, 1, 1)


def whole_conv(x: Tensor, weight: Tensor, bias: Tensor | None, s: Side, r: Side, geometry: Geometry) -> Tensor | None:
    """Return ``scaled_conv`` of its arguments outside autograd; None where there is no kernel, or a quicker way.

    Example:
        >>> x, weight = (torch.ones(4, 3, 16, 16).to(memory_format=torch.channels_last) for _ in range(2))
        >>> one = Geometry((1, 1), (0, 0), (1, 1), 1)
        >>> whole_conv(x, weight, None, None, torch.ones(2, 4), one) is None  # four channels fill no vector
        True
    """
    run = kernel("scaled_conv", x.dtype)
    if run is None or x.dim() != 4 or torch.get_num_threads() > 1 or not _lie_well(x, weight):
        return None
    rows, inputs, height, width = x.shape
    outputs, _, lines, columns = weight.shape
    size = _size(inputs, height, width, outputs, lines, columns, geometry)
    if size is None:
        return None
    out_height, out_width, elements = size
    if not (is_known(s) and is_known(r) and all(side is None or fits(bias, side) for side in (s, r))):
        return None
    y = torch.empty((rows, outputs, out_height, out_width), dtype=x.dtype, memory_format=torch.channels_last)
    memory = scratch("panel", x, elements + width * inputs + 2 * outputs)
    shape = (height, width, inputs, outputs, lines, columns, *geometry.stride, *geometry.padding, out_height, out_width)
    run(
        x.data_ptr(),
        weight.data_ptr(),
        *(NO_SIDE if s is None else described(s, x)),
        *(NO_SIDE if r is None else described(r, y)),
        None if bias is None else bias.data_ptr(),
        1 if bias is None else bias.shape[0],
        rows,
        integers(shape),
        y.data_ptr(),
        memory.data_ptr(),
    )
    return y


@lru_cache(1024)
def _size(
    inputs: int, height: int, width: int, outputs: int, lines: int, columns: int, geometry: Geometry
) -> tuple[int, int, int] | None:
    """Return an output's size and the elements of a panel and an image, if the kernel is to convolve such images."""
    across = list(zip((height, width), (lines, columns), geometry.stride, geometry.padding, strict=True))
    out_height, out_width = ((size + 2 * pad - taps) // stride + 1 for size, taps, stride, pad in across)
    if geometry.groups > 1 or geometry.dilation != (1, 1) or outputs % LANES or out_height < 1:
        return None
    if out_width < 4 * max(1, 4 * LANES // math.gcd(outputs, 4 * LANES)):  # as many as a tile has
        return None
    moved = inputs * height * width + outputs * out_height * out_width
    each, places = inputs * outputs, lines * columns * out_height * out_width
    inside = math.prod(
        sum(0 <= i * stride + tap - pad < size for i in range(out) for tap in range(taps))
        for (size, taps, stride, pad), out in zip(across, (out_height, out_width), strict=True)
    )
    if each * places > MOST_PRODUCTS * moved or each * (places - inside) > MOST_WITH_PADDING * moved:
        return None
    padded = math.prod(size + 2 * pad for size, _, _, pad in across) * inputs
    elements = padded + 4 * LANES * inputs * lines * columns
    return (out_height, out_width, elements) if elements <= MOST_ELEMENTS else None


def _lie_well(x: Tensor, weight: Tensor) -> bool:
    last = torch.channels_last
    return all(
        type(one) in WITH_MEMORY and one.is_cpu and one.dtype is x.dtype and one.is_contiguous(memory_format=last)
        for one in (x, weight)
    )
