"""Convolutions between two factors in one compiled kernel, where its passes over memory are what costs."""

import math

import torch
from torch import Tensor, nn

from slimbayes.layers.flips import Side
from slimbayes.layers.geometry import Geometry
from slimbayes.layers.passes import described, fits, is_known
from slimbayes.layers.scratch import scratch
from slimbayes.native import integers, kernel

__all__ = ["whole_conv"]

#: Vectors of the widest kind hold so many numbers; the kernel wants whole ones of output channels.
LANES = 16
#: With more products for each element of input and output, torch's convolution and two passes are quicker.
MOST_PRODUCTS = 200
#: What a kernel and its input take of a processor's second cache.
MOST_ELEMENTS = 2**17
NO_SIDE = (None, None, 0, None, 0, 1, 1, 1, 1, 1)


def whole_conv(x: Tensor, weight: Tensor, bias: Tensor | None, s: Side, r: Side, geometry: Geometry) -> Tensor | None:
    """Return ``scaled_conv`` of its arguments outside autograd; None where the kernel is not there, or not the quickest.

    Example:
        >>> x, weight = (torch.ones(4, 3, 16, 16).to(memory_format=torch.channels_last) for _ in range(2))
        >>> one = Geometry((1, 1), (0, 0), (1, 1), 1)
        >>> whole_conv(x, weight, None, None, torch.ones(2, 4), one) is None  # four channels fill no vector
        True
    """
    run = kernel("scaled_conv", x.dtype)
    if run is None or x.dim() != 4 or torch.get_num_threads() > 1 or not _lie_well(x, weight):
        return None
    (rows, inputs, height, width), (outputs, _, lines, columns) = x.shape, weight.shape
    (stride_y, stride_x), (pad_y, pad_x) = geometry.stride, geometry.padding
    out_height = (height + 2 * pad_y - lines) // stride_y + 1
    out_width = (width + 2 * pad_x - columns) // stride_x + 1
    if geometry.groups > 1 or geometry.dilation != (1, 1) or outputs % LANES or out_height < 1:
        return None
    if out_width < 4 * max(1, 4 * LANES // math.gcd(outputs, 4 * LANES)):  # as many as a tile has
        return None
    moved = inputs * height * width + outputs * out_height * out_width
    depth, padded = inputs * lines * columns, (height + 2 * pad_y) * (width + 2 * pad_x) * inputs
    if depth * outputs * out_height * out_width > MOST_PRODUCTS * moved or padded + 4 * LANES * depth > MOST_ELEMENTS:
        return None
    if not (is_known(s) and is_known(r) and all(side is None or fits(bias, side) for side in (s, r))):
        return None
    y = torch.empty((rows, outputs, out_height, out_width), dtype=x.dtype, memory_format=torch.channels_last)
    memory = scratch("panel", x, padded + 4 * LANES * depth + width * inputs + 2 * outputs)
    shape = (height, width, inputs, outputs, lines, columns, stride_y, stride_x, pad_y, pad_x, out_height, out_width)
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


def _lie_well(*tensors: Tensor) -> bool:
    known = (Tensor, nn.Parameter)
    return all(
        type(one) in known and one.is_cpu and one.is_contiguous(memory_format=torch.channels_last) for one in tensors
    )
