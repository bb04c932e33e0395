"""The linear maps of torch's layers with the weight as an argument; what rank-1 and Gaussian layers share."""

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from slimbayes.layers.base import BayesianLayer

__all__ = ["ConvOp", "ConvTransposeOp", "LinearOp", "linear_by_group"]


def linear_by_group(x: Tensor, weights: Tensor, axis: int) -> Tensor:
    """Apply ``(groups, out, in)`` weights, each to its group of consecutive rows on ``axis`` of ``(*, in)``.

    Example:
        >>> weights = torch.stack([torch.eye(2), 3 * torch.eye(2)])
        >>> linear_by_group(torch.ones(4, 2), weights, 0)[:, 0]
        tensor([1., 1., 3., 3.])
    """
    if weights.shape[0] == 1:
        return F.linear(x, weights[0])
    rows = x.movedim(axis, 0)
    y = rows.reshape(weights.shape[0], -1, x.shape[-1]) @ weights.transpose(1, 2)
    return y.view(*rows.shape[:-1], weights.shape[1]).movedim(0, axis)


class LinearOp:
    """``nn.Linear`` without its bias."""

    channel_dim = -1
    #: Axis of the output channels in the weight.
    output_dim = 0
    in_features: int
    out_features: int

    def sizes(self) -> tuple[int, int]:
        """Return the numbers of input and output channels."""
        return self.in_features, self.out_features

    def apply_weight(self, x: Tensor, weight: Tensor) -> Tensor:
        """Apply the map with one weight for all rows."""
        return F.linear(x, weight)

    def apply_weights(self, x: Tensor, weights: Tensor, axis: int) -> Tensor:
        """Apply ``(groups, out, in)`` weights, each to its group of consecutive rows on ``axis``."""
        return linear_by_group(x, weights, axis)


class ConvOp:
    """A convolution without its bias; rows are always on the first axis."""

    channel_dim = 1
    output_dim = 0
    # What every torch convolution has; declared here for the type checker.
    weight: Tensor
    in_channels: int
    out_channels: int
    groups: int
    padding: Any
    padding_mode: Any

    def sizes(self) -> tuple[int, int]:
        """Return the numbers of input and output channels."""
        return self.in_channels, self.out_channels

    def rows_axis(self, x: Tensor) -> int:
        """Rows are always the first axis of a convolution's input."""
        assert isinstance(self, BayesianLayer)
        if x.dim() != self.weight.dim():
            raise ValueError(
                f"Layer {self.label} expected a batch of {self.weight.dim()} dimensions, but got shape "
                f"{tuple(x.shape)}. Give it a batch, even of one."
            )
        return 0

    def apply_weight(self, x: Tensor, weight: Tensor, *args: Any) -> Tensor:
        """Apply the map with one weight for all rows."""
        return self._conv_forward(x, weight, None)  # type: ignore[attr-defined]

    def apply_weights(self, x: Tensor, weights: Tensor, axis: int, *args: Any) -> Tensor:
        """Apply ``(groups, *weight shape)`` weights, each to its group of consecutive rows.

        One convolution a group: on the CPU that is faster than one grouped convolution over channels.
        """
        pieces: Iterable[tuple[Tensor, Tensor]] = zip(x.chunk(weights.shape[0]), weights, strict=True)
        answers = [self.apply_weight(rows, weight, *args) for rows, weight in pieces]
        return answers[0] if len(answers) == 1 else torch.cat(answers)


class ConvTransposeOp(ConvOp):
    """A transposed convolution without its bias."""

    output_dim = 1
    functional: Any

    def apply_weight(self, x: Tensor, weight: Tensor, *args: Any) -> Tensor:
        """Apply the map with one weight for all rows; ``args`` may hold the output size."""
        size = args[0] if args else None
        output_padding = self._output_padding(  # type: ignore[attr-defined]
            x,
            None if size is None else list(size),
            self.stride,  # type: ignore[attr-defined]
            self.padding,
            self.kernel_size,  # type: ignore[attr-defined]
            self.weight.dim() - 2,
            self.dilation,  # type: ignore[attr-defined]
        )
        convolve = type(self).functional
        return convolve(
            x,
            weight,
            None,
            self.stride,  # type: ignore[attr-defined]
            self.padding,
            output_padding,
            self.groups,
            self.dilation,  # type: ignore[attr-defined]
        )
