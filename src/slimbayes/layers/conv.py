"""Convolutions and transposed convolutions, with rank-1 factors on their channels or with Gaussian weights."""

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes.layers.base import BayesianLayer
from slimbayes.layers.gaussian_layer import Gaussian
from slimbayes.layers.rank1 import Rank1

__all__ = [
    "GaussianConv1d",
    "GaussianConv2d",
    "GaussianConv3d",
    "GaussianConvTranspose1d",
    "GaussianConvTranspose2d",
    "GaussianConvTranspose3d",
    "Rank1Conv1d",
    "Rank1Conv2d",
    "Rank1Conv3d",
    "Rank1ConvTranspose1d",
    "Rank1ConvTranspose2d",
    "Rank1ConvTranspose3d",
]


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


class _Rank1Conv(ConvOp, Rank1):
    def op(self, x: Tensor, *args: Any) -> Tensor:
        return self.apply_weight(x, self.weight, *args)

    def scaled_weight(self, scale: Tensor) -> Tensor:
        return self.weight * self._by_group(scale).view(*self.weight.shape[:2], *[1] * (self.weight.dim() - 2))

    def _by_group(self, scale: Tensor) -> Tensor:
        """Return, of a full (out, in) matrix, the blocks that a grouped weight (out, in / groups) has."""
        blocks = scale.view(self.groups, -1, self.groups, self.in_channels // self.groups)
        return torch.cat([blocks[g, :, g] for g in range(self.groups)])

    def constant_response(self, value: Tensor) -> Tensor:
        padded = self.padding not in ("valid", 0) and self.padding != (0,) * (self.weight.dim() - 2)
        if padded and self.padding_mode == "zeros":
            return super().constant_response(value)  # a border of zeros answers differently: not foldable
        taps = self.weight.flatten(2).sum(2)
        return torch.einsum("goi,gi->go", taps.unflatten(0, (self.groups, -1)), value.view(self.groups, -1)).flatten()


class Rank1Conv1d(_Rank1Conv, nn.Conv1d):
    """``nn.Conv1d`` with rank-1 factors on its channels.

    Shape:
        - Input: ``(members * m, in_channels, length)``. Output: ``(members * m, out_channels, length')``.

    Example:
        >>> Rank1Conv1d(4, 6, 3, members=2)(torch.randn(10, 4, 9)).shape
        torch.Size([10, 6, 7])
    """


class Rank1Conv2d(_Rank1Conv, nn.Conv2d):
    """``nn.Conv2d`` with rank-1 factors on its channels.

    Shape:
        - Input: ``(members * m, in_channels, h, w)``. Output: ``(members * m, out_channels, h', w')``.

    Example:
        >>> layer = Rank1Conv2d(4, 6, 3, padding=1, padding_mode="circular", groups=2, members=2)
        >>> layer(torch.randn(10, 4, 8, 8)).shape
        torch.Size([10, 6, 8, 8])
    """


class Rank1Conv3d(_Rank1Conv, nn.Conv3d):
    """``nn.Conv3d`` with rank-1 factors on its channels.

    Shape:
        - Input: ``(members * m, in_channels, d, h, w)``. Output: ``(members * m, out_channels, d', h', w')``.

    Example:
        >>> Rank1Conv3d(2, 3, 3, members=2)(torch.randn(4, 2, 5, 5, 5)).shape
        torch.Size([4, 3, 3, 3, 3])
    """


class _Rank1ConvTranspose(ConvTransposeOp, _Rank1Conv):
    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        return super().forward(input) if output_size is None else super().forward(input, output_size)

    def _by_group(self, scale: Tensor) -> Tensor:
        """As above for a transposed weight, (in, out / groups)."""
        blocks = scale.view(self.groups, -1, self.groups, self.in_channels // self.groups)
        return torch.cat([blocks[g, :, g].T for g in range(self.groups)])

    def constant_response(self, value: Tensor) -> Tensor:
        return Rank1.constant_response(self, value)


class Rank1ConvTranspose1d(_Rank1ConvTranspose, nn.ConvTranspose1d):
    """``nn.ConvTranspose1d`` with rank-1 factors on its channels.

    Shape:
        - Input: ``(members * m, in_channels, length)``. Output: ``(members * m, out_channels, length')``.

    Example:
        >>> Rank1ConvTranspose1d(4, 6, 3, stride=2, members=2)(torch.randn(10, 4, 9)).shape
        torch.Size([10, 6, 19])
    """

    functional = F.conv_transpose1d


class Rank1ConvTranspose2d(_Rank1ConvTranspose, nn.ConvTranspose2d):
    """``nn.ConvTranspose2d`` with rank-1 factors on its channels.

    Shape:
        - Input: ``(members * m, in_channels, h, w)``. Output: ``(members * m, out_channels, h', w')``.

    Example:
        >>> layer = Rank1ConvTranspose2d(4, 6, 3, stride=2, members=2)
        >>> layer(torch.randn(10, 4, 8, 8), output_size=(18, 18)).shape
        torch.Size([10, 6, 18, 18])
    """

    functional = F.conv_transpose2d


class Rank1ConvTranspose3d(_Rank1ConvTranspose, nn.ConvTranspose3d):
    """``nn.ConvTranspose3d`` with rank-1 factors on its channels.

    Shape:
        - Input: ``(members * m, in_channels, d, h, w)``. Output: ``(members * m, out_channels, d', h', w')``.

    Example:
        >>> Rank1ConvTranspose3d(2, 3, 3, members=2)(torch.randn(4, 2, 3, 3, 3)).shape
        torch.Size([4, 3, 5, 5, 5])
    """

    functional = F.conv_transpose3d


class GaussianConv1d(ConvOp, Gaussian, nn.Conv1d):
    """``nn.Conv1d`` whose weights are Gaussian.

    Shape:
        - Input: ``(rows, in_channels, length)``. Output: ``(rows, out_channels, length')``.

    Example:
        >>> GaussianConv1d(4, 6, 3)(torch.randn(10, 4, 9)).shape
        torch.Size([10, 6, 7])
    """


class GaussianConv2d(ConvOp, Gaussian, nn.Conv2d):
    """``nn.Conv2d`` whose weights are Gaussian.

    Shape:
        - Input: ``(rows, in_channels, h, w)``. Output: ``(rows, out_channels, h', w')``.

    Example:
        >>> GaussianConv2d(4, 6, 3, padding=1, groups=2, k=1, estimator="flipout")(torch.randn(10, 4, 8, 8)).shape
        torch.Size([10, 6, 8, 8])
    """


class GaussianConv3d(ConvOp, Gaussian, nn.Conv3d):
    """``nn.Conv3d`` whose weights are Gaussian.

    Shape:
        - Input: ``(rows, in_channels, d, h, w)``. Output: ``(rows, out_channels, d', h', w')``.

    Example:
        >>> GaussianConv3d(2, 3, 3)(torch.randn(4, 2, 5, 5, 5)).shape
        torch.Size([4, 3, 3, 3, 3])
    """


class _GaussianConvTranspose(ConvTransposeOp, Gaussian):
    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        return super().forward(input) if output_size is None else super().forward(input, output_size)


class GaussianConvTranspose1d(_GaussianConvTranspose, nn.ConvTranspose1d):
    """``nn.ConvTranspose1d`` whose weights are Gaussian.

    Shape:
        - Input: ``(rows, in_channels, length)``. Output: ``(rows, out_channels, length')``.

    Example:
        >>> GaussianConvTranspose1d(4, 6, 3, stride=2)(torch.randn(10, 4, 9)).shape
        torch.Size([10, 6, 19])
    """

    functional = F.conv_transpose1d


class GaussianConvTranspose2d(_GaussianConvTranspose, nn.ConvTranspose2d):
    """``nn.ConvTranspose2d`` whose weights are Gaussian.

    Shape:
        - Input: ``(rows, in_channels, h, w)``. Output: ``(rows, out_channels, h', w')``.

    Example:
        >>> GaussianConvTranspose2d(4, 6, 3, stride=2)(torch.randn(10, 4, 8, 8), output_size=(18, 18)).shape
        torch.Size([10, 6, 18, 18])
    """

    functional = F.conv_transpose2d


class GaussianConvTranspose3d(_GaussianConvTranspose, nn.ConvTranspose3d):
    """``nn.ConvTranspose3d`` whose weights are Gaussian.

    Shape:
        - Input: ``(rows, in_channels, d, h, w)``. Output: ``(rows, out_channels, d', h', w')``.

    Example:
        >>> GaussianConvTranspose3d(2, 3, 3)(torch.randn(4, 2, 3, 3, 3)).shape
        torch.Size([4, 3, 5, 5, 5])
    """

    functional = F.conv_transpose3d
