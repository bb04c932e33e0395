"""Rank-1 convolutions and transposed convolutions: factors act on channels, at every position alike."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes.layers.flips import Flipped, Side
from slimbayes.layers.folded_conv import folded_conv
from slimbayes.layers.geometry import Geometry
from slimbayes.layers.ops import ConvOp, ConvTransposeOp
from slimbayes.layers.passes import kernel_for
from slimbayes.layers.rank1 import Rank1
from slimbayes.layers.scaled_conv import scaled_conv

__all__ = [
    "Rank1Conv1d",
    "Rank1Conv2d",
    "Rank1Conv3d",
    "Rank1ConvTranspose1d",
    "Rank1ConvTranspose2d",
    "Rank1ConvTranspose3d",
]

#: Fewer rows of a draw would not pay for a convolution of their own.
LEAST_ROWS_TO_FOLD = 8
#: So many times longer than an element of the input or output takes one of a draw's weight, which is folded, used and
#: differentiated for each draw.
COST_OF_A_WEIGHT = 8


class _Rank1Conv(ConvOp, Rank1):
    def fused(self, x: Tensor, axis: int, s: Any, r: Any, *args: Any) -> Tensor | None:
        if args or isinstance(self.padding, str) or self.padding_mode != "zeros":
            return None
        geometry = Geometry(self.stride, self.padding, self.dilation, self.groups)  # type: ignore[arg-type]
        apply = folded_conv if self._should_fold(x, s, r) else scaled_conv
        return apply(x, self.weight, self.member_biases(), s, r, geometry)

    def _should_fold(self, x: Tensor, s: Side, r: Side) -> bool:
        """Tell whether weights for each draw cost less than passes over the input and the output do."""
        if isinstance(s, Flipped) or isinstance(r, Flipped) or not torch.is_grad_enabled():
            return False  # the gain is in the backward pass, where sums over positions are saved
        side = r if s is None else s
        if side is not None and kernel_for("scale", x, side) is not None:
            return False  # compiled passes cost less
        draws = {drawn.shape[0] for drawn in (s, r) if drawn is not None}
        positions = x.shape[0] * math.prod(x.shape[2:])
        return (
            self.groups == 1
            and len(draws) == 1
            and x.shape[0] >= LEAST_ROWS_TO_FOLD * max(draws)
            and max(draws) * self.weight.numel() * COST_OF_A_WEIGHT < positions * (self.in_channels + self.out_channels)
        )

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
    def fused(self, x: Tensor, axis: int, s: Any, r: Any, *args: Any) -> Tensor | None:
        return None

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
