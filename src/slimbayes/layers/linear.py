"""Dense layers: torch's linear map, with rank-1 factors or with Gaussian weights."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes.families import Normal
from slimbayes.layers._local_reparameterization import local_linear
from slimbayes.layers.base import fused
from slimbayes.layers.gaussian_layer import Gaussian
from slimbayes.layers.rank1 import Drawn, Rank1

__all__ = ["GaussianLinear", "LinearOp", "Rank1Linear", "linear_by_group"]


def linear_by_group(x: Tensor, weights: Tensor, axis: int) -> Tensor:
    """Apply ``(groups, out, in)`` weights, each to its group of consecutive rows on ``axis`` of ``(*, in)``.

    Example:
        >>> import torch
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


class Rank1Linear(LinearOp, Rank1, nn.Linear):
    """``nn.Linear`` with rank-1 factors on its inputs and outputs.

    Args:
        *args: The arguments of ``nn.Linear``.
        **kwargs: Those, and the fields of ``FactorOptions``.

    Shape:
        - Input: ``(members * m, *, in_features)``, member-major, any number of dimensions between.
        - Output: ``(members * m, *, out_features)``.

    Example:
        >>> import torch
        >>> layer = Rank1Linear(5, 7, members=3)
        >>> layer(torch.randn(4, 5).repeat(3, 1)).shape, layer.bias.shape
        (torch.Size([12, 7]), torch.Size([3, 7]))
    """

    def op(self, x: Tensor, *args: Any) -> Tensor:  # noqa: D102
        return self.apply_weight(x, self.weight)

    def fused_forward(self, x: Tensor, s: Drawn, r: Drawn, bias: Tensor | None, axis: int) -> Tensor | None:  # noqa: D102
        if self.additive or self.scales_bias or type(self).op is not Rank1Linear.op:
            return None
        found: Tensor | None = fused("scaled_linear", x, self.weight, s, r, bias, axis)
        return found

    def scaled_weight(self, scale: Tensor) -> Tensor:  # noqa: D102
        return self.weight * scale

    def constant_response(self, value: Tensor) -> Tensor:  # noqa: D102
        return self.weight @ value


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
        rows, name = x.shape[0], self.weight_posterior.name
        noise = self.for_rows(
            name, rows, lambda shape, source: Normal().noise((*shape, self.out_features), self.weight, source)
        )
        bias_log = None if self.bias_posterior is None else self.bias_posterior.spread.logs()[0]
        return local_linear(x, self.weight, self.bias, noise, bias_log, *self.weight_posterior.spread.logs())
