"""The rank-1 linear layer."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes.layers.rank1 import Rank1

__all__ = ["Rank1Linear"]


class Rank1Linear(Rank1, nn.Linear):
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

    def sizes(self) -> tuple[int, int]:  # noqa: D102
        return self.in_features, self.out_features

    def op(self, x: Tensor, *args: Any) -> Tensor:  # noqa: D102
        return F.linear(x, self.weight)

    def scaled_weight(self, scale: Tensor) -> Tensor:  # noqa: D102
        return self.weight * scale

    def constant_response(self, value: Tensor) -> Tensor:  # noqa: D102
        return self.weight @ value
