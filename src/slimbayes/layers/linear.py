"""The rank-1 linear layer."""

from typing import Any

from torch import Tensor, nn

from slimbayes.layers.ops import LinearOp
from slimbayes.layers.rank1 import Rank1

__all__ = ["Rank1Linear"]


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

    def scaled_weight(self, scale: Tensor) -> Tensor:  # noqa: D102
        return self.weight * scale

    def constant_response(self, value: Tensor) -> Tensor:  # noqa: D102
        return self.weight @ value
