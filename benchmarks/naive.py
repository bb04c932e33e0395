"""A rank-1 layer with noise per example as anybody would write it: what `sb.rank1` has to beat."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

__all__ = ["NaiveRank1", "naive_kl"]

PRIOR_MEAN, PRIOR_STD = 1.0, 0.1


class NaiveRank1(nn.Module):
    """A linear or convolutional layer whose rows are scaled by factors that every row draws anew.

    Row n of member k goes through y = ((x ∘ s) W) ∘ r + b_k, with s ~ N(loc_k, softplus(rho_k)²) and r in the same way.

    Args:
        layer: Without groups; its weight is taken over.
        members: K; the first rows / K rows belong to the first member.
        spread: Standard deviation of the members' locations around one.
        rho: Where all of the rho start.

    Shape:
        - Input and output: as the layer's.

    Example:
        >>> NaiveRank1(nn.Linear(5, 3), members=2)(torch.randn(8, 5)).shape
        torch.Size([8, 3])
    """

    def __init__(self, layer: nn.Linear | nn.Conv2d, members: int, spread: float = 0.5, rho: float = -3.0) -> None:
        super().__init__()
        outputs, inputs = layer.weight.shape[:2]
        self.layer, self.members = layer, members
        self.input_loc = nn.Parameter(1 + spread * torch.randn(members, inputs))
        self.output_loc = nn.Parameter(1 + spread * torch.randn(members, outputs))
        self.input_rho = nn.Parameter(torch.full((members, inputs), rho))
        self.output_rho = nn.Parameter(torch.full((members, outputs), rho))
        self.bias = None
        if layer.bias is not None:
            self.bias = nn.Parameter(layer.bias.detach().repeat(members, 1))
            layer.bias = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's outputs, each row under a draw of its own."""
        y = self.layer(x * self._draw(self.input_loc, self.input_rho, x))
        y = y * self._draw(self.output_loc, self.output_rho, x)
        if self.bias is None:
            return y
        return y + _like(self.bias.repeat_interleave(len(x) // self.members, 0), x)

    def _draw(self, loc: Tensor, rho: Tensor, x: Tensor) -> Tensor:
        noise = torch.randn(self.members, len(x) // self.members, loc.shape[1], device=x.device)
        return _like((loc[:, None] + F.softplus(rho)[:, None] * noise).flatten(0, 1), x)

    def kl(self) -> Tensor:
        """Return the KL of all factors from N(1, 0.1²), summed."""
        prior = Normal(PRIOR_MEAN, PRIOR_STD)
        pairs = ((self.input_loc, self.input_rho), (self.output_loc, self.output_rho))
        return torch.stack([kl_divergence(Normal(loc, F.softplus(rho)), prior).sum() for loc, rho in pairs]).sum()


def naive_kl(model: nn.Module) -> Tensor:
    """Return the summed KL of a network's naive layers."""
    return torch.stack([part.kl() for part in model.modules() if isinstance(part, NaiveRank1)]).sum()


def _like(values: Tensor, x: Tensor) -> Tensor:
    """Give ``(rows, channels)`` as many axes as ``x`` has."""
    return values[(...,) + (None,) * (x.dim() - 2)]
