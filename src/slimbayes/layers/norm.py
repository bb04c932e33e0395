"""Normalisation with statistics and affine parameters for each member."""

import copy

import torch
from torch import Tensor, nn

from slimbayes.layers.base import BayesianLayer, Pick
from slimbayes.sampling import Sampling

__all__ = ["NORMS", "MemberNorm"]

NORMS: tuple[type[nn.Module], ...] = (
    nn.modules.batchnorm._BatchNorm,
    nn.SyncBatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)


class MemberNorm(BayesianLayer, nn.Module):
    """One copy of a norm layer for each member, each fed its member's rows alone.

    Shape:
        - Input and output: as the norm's own, rows member-major.

    Example:
        >>> MemberNorm(nn.BatchNorm1d(5), members=3)(torch.randn(12, 5)).shape
        torch.Size([12, 5])
    """

    def __init__(self, norm: nn.Module, members: int) -> None:
        super().__init__()
        self.plain_class = type(norm)
        self.sampling = Sampling()
        self.norms = nn.ModuleList([norm, *(copy.deepcopy(norm) for _ in range(members - 1))])
        # Only these normalise the last axes, and so may meet rows on another axis than the first.
        self.rows_first = not isinstance(norm, (nn.LayerNorm, nn.RMSNorm))

    def set_up(self) -> None:
        """Nothing to add: the copies are made when it is built."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise each member's rows with its own copy."""
        self.enter()
        axis = 0 if self.rows_first else self.rows_axis(input)
        self.rows_of(input, axis)
        members = len(self.norms)
        if input.shape[axis] % members:
            raise ValueError(
                f"Layer {self.label} got {input.shape[axis]} rows on axis {axis} of an input of shape "
                f"{tuple(input.shape)}, which is no multiple of {members} members. Exclude it or set its `row_dim`."
            )
        parts = zip(self.norms, input.chunk(members, axis), strict=True)
        return torch.cat([norm(part) for norm, part in parts], axis)

    def fold(self, pick: Pick, member: int) -> nn.Module:
        """Return the member's own norm layer."""
        return self.norms[member]
