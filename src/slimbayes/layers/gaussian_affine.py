"""Dense layers, convolutions and transposed convolutions with Gaussian weights."""

import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes.families import Normal
from slimbayes.layers.base import fused
from slimbayes.layers.gaussian_layer import Gaussian
from slimbayes.layers.local import local_linear
from slimbayes.layers.ops import ConvOp, ConvTransposeOp, LinearOp

__all__ = [
    "GaussianConv1d",
    "GaussianConv2d",
    "GaussianConv3d",
    "GaussianConvTranspose1d",
    "GaussianConvTranspose2d",
    "GaussianConvTranspose3d",
    "GaussianLinear",
]


class GaussianLinear(LinearOp, Gaussian, nn.Linear):
    """``nn.Linear`` whose weights are Gaussian.

    Args:
        *args: The arguments of ``nn.Linear``.
        **kwargs: Those, and the fields of ``GaussianOptions``.

    Shape:
        - Input: ``(rows, *, in_features)``. Output: ``(rows, *, out_features)``.

    Example:
        >>> import torch
        >>> layer = GaussianLinear(5, 7, k=2, estimator="local")
        >>> layer(torch.randn(4, 5)).shape, layer.weight_posterior.scale.shape
        (torch.Size([4, 7]), torch.Size([7, 5]))
    """

    def _meets_rows_once(self, x: Tensor, groups: int) -> bool:
        return x.dim() == 2 and x.shape[0] == groups

    def _local(self, x: Tensor) -> Tensor:
        rows, sampling = x.shape[0], self.sampling
        noise = fused("noise_for_rows", rows, self.out_features, self.weight, sampling)
        if noise is None:
            noise = Normal().noise((rows, self.out_features), self.weight, sampling.generator)
        bias_log = None if self.bias_posterior is None else self.bias_posterior.spread.logs()[0]
        return local_linear(x, self.weight, self.bias, noise, bias_log, *self.weight_posterior.spread.logs())


class GaussianConv1d(ConvOp, Gaussian, nn.Conv1d):
    """``nn.Conv1d`` whose weights are Gaussian.

    Shape:
        - Input: ``(rows, in_channels, length)``. Output: ``(rows, out_channels, length')``.

    Example:
        >>> import torch
        >>> GaussianConv1d(4, 6, 3)(torch.randn(10, 4, 9)).shape
        torch.Size([10, 6, 7])
    """


class GaussianConv2d(ConvOp, Gaussian, nn.Conv2d):
    """``nn.Conv2d`` whose weights are Gaussian.

    Shape:
        - Input: ``(rows, in_channels, h, w)``. Output: ``(rows, out_channels, h', w')``.

    Example:
        >>> import torch
        >>> GaussianConv2d(4, 6, 3, padding=1, groups=2, k=1, estimator="flipout")(torch.randn(10, 4, 8, 8)).shape
        torch.Size([10, 6, 8, 8])
    """


class GaussianConv3d(ConvOp, Gaussian, nn.Conv3d):
    """``nn.Conv3d`` whose weights are Gaussian.

    Shape:
        - Input: ``(rows, in_channels, d, h, w)``. Output: ``(rows, out_channels, d', h', w')``.

    Example:
        >>> import torch
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
        >>> import torch
        >>> GaussianConvTranspose1d(4, 6, 3, stride=2)(torch.randn(10, 4, 9)).shape
        torch.Size([10, 6, 19])
    """

    functional = F.conv_transpose1d


class GaussianConvTranspose2d(_GaussianConvTranspose, nn.ConvTranspose2d):
    """``nn.ConvTranspose2d`` whose weights are Gaussian.

    Shape:
        - Input: ``(rows, in_channels, h, w)``. Output: ``(rows, out_channels, h', w')``.

    Example:
        >>> import torch
        >>> GaussianConvTranspose2d(4, 6, 3, stride=2)(torch.randn(10, 4, 8, 8), output_size=(18, 18)).shape
        torch.Size([10, 6, 18, 18])
    """

    functional = F.conv_transpose2d


class GaussianConvTranspose3d(_GaussianConvTranspose, nn.ConvTranspose3d):
    """``nn.ConvTranspose3d`` whose weights are Gaussian.

    Shape:
        - Input: ``(rows, in_channels, d, h, w)``. Output: ``(rows, out_channels, d', h', w')``.

    Example:
        >>> import torch
        >>> GaussianConvTranspose3d(2, 3, 3)(torch.randn(4, 2, 3, 3, 3)).shape
        torch.Size([4, 3, 5, 5, 5])
    """

    functional = F.conv_transpose3d
