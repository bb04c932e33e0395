"""Filter-wise dropout: rank-1 factors whose distribution is Bernoulli, and which have no parameters."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor, nn

from slimbayes._checks import check_choice, check_number
from slimbayes.layers.dropout_mask import ElementMask, kept
from slimbayes.layers.rank1 import FactorOptions, RowFactor
from slimbayes.sampling import Sampling

__all__ = ["UNITS", "DropoutFactor", "DropoutOptions"]

UNITS = ("filter", "element")


class DropoutFactor(RowFactor, nn.Module):
    """Independent Bernoulli(1 - rate) / (1 - rate) for each channel: mean 1, variance rate / (1 - rate).

    Args:
        channels: Length of the vector.
        rate: Probability of a zero.
        device: Where to draw.
        dtype: Type of the values.

    Example:
        >>> factor = DropoutFactor(8, 0.5)
        >>> factor.hold(1, 2, None).shape, factor.scale.tolist()[0][:2], factor.kl()
        (torch.Size([2, 8]), [1.0, 1.0], tensor([0.]))
    """

    loc: Tensor
    rho = None  # no scale to train
    members = 1
    random = True

    def __init__(self, channels: int, rate: float, device: Any = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.sampling = Sampling()
        self.rate = rate
        self.register_buffer("loc", torch.ones(1, channels, device=device, dtype=dtype), persistent=False)

    @property
    def location(self) -> Tensor:
        """Ones: the mean, and the network without dropout."""
        return self.loc

    @property
    def scale(self) -> Tensor:
        """sqrt(rate / (1 - rate))."""
        return self.loc * math.sqrt(self.rate / (1 - self.rate))

    def _draw(self, groups: int, generator: Generator | None) -> Tensor:
        keep = kept((groups, self.loc.shape[1]), self.rate, self.loc.device, generator)
        return keep.to(self.loc.dtype) * (1 / (1 - self.rate))

    def kl(self) -> Tensor:
        """Return zero: nothing is trained."""
        return self.loc.new_zeros(1)

    def log_scale_gradients(self) -> list[Tensor]:
        """Return none."""
        return []

    def extra_repr(self) -> str:
        """Show the rate and the shape."""
        return f"rate={self.rate:g}, {tuple(self.loc.shape)}"


@dataclass
class DropoutOptions(FactorOptions):
    """Describes the dropout of a layer to the rank-1 layers, which do the rest.

    Args:
        rate: Probability of a zero.
        unit: ``"filter"`` or ``"element"``.
    """

    members: int = 1
    member_bias: bool = False
    rate: float = 0.1
    unit: str = "filter"

    #: Dropout of a layer's output is of all of it.
    scales_bias: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("rate", self.rate, 0.0, 1.0, "It is the probability of a zero; try 0.1.")
        check_choice("unit", self.unit, UNITS)
        self.rate = float(self.rate)

    def factor(self, channels: int, summed: bool, device: Any, dtype: torch.dtype) -> Any:
        """Return a new factor, or an element-wise mask."""
        if self.unit == "element":
            return ElementMask(self.rate, channels, device, dtype)
        return DropoutFactor(channels, self.rate, device, dtype)
