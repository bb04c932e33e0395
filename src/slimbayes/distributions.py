"""Distributions that ``torch.distributions`` lacks."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch import distributions as td
from torch.distributions import constraints

__all__ = ["Delta", "Horseshoe", "RootInverseGamma", "scaled_exponential_integral"]


class Delta(td.Distribution):
    """A point mass at ``loc``.

    Example:
        >>> Delta(torch.tensor([1.0, 2.0])).rsample((3,)).shape
        torch.Size([3, 2])
    """

    arg_constraints: dict[str, constraints.Constraint] = {"loc": constraints.real}  # noqa: RUF012
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Tensor) -> None:
        self.loc = loc
        super().__init__(loc.shape, validate_args=False)

    @property
    def mean(self) -> Tensor:
        """The point itself."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """Zero."""
        return torch.zeros_like(self.loc)

    def rsample(self, sample_shape: torch.Size | tuple[int, ...] = ()) -> Tensor:  # type: ignore[override]
        """Return the point, expanded."""
        return self.loc.expand(self._extended_shape(torch.Size(sample_shape)))


class Horseshoe(td.Distribution):
    r"""N(loc, :math:`\lambda^2`) with :math:`\lambda \sim C^+(0, \text{scale})`, the scale integrated out.

    .. math::
        p(x) = \frac{e^z E_1(z)}{\text{scale}\sqrt{2\pi^3}}, \qquad z = \frac{(x - loc)^2}{2\,\text{scale}^2}

    The density has a pole at ``loc`` (it grows as the log of 1 over the distance), which shrinks factors there.

    Example:
        >>> Horseshoe(torch.tensor(1.0), torch.tensor(0.1)).log_prob(torch.tensor(1.1))
        tensor(0.1587)
    """

    arg_constraints: dict[str, constraints.Constraint] = {  # noqa: RUF012
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        self.loc, self.scale = torch.broadcast_tensors(loc, scale)
        super().__init__(self.loc.shape, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density."""
        z = ((value - self.loc) / self.scale).square() / 2
        return scaled_exponential_integral(z).log() - self.scale.log() - 0.5 * math.log(2 * math.pi**3)

    def rsample(self, sample_shape: torch.Size | tuple[int, ...] = ()) -> Tensor:  # type: ignore[override]
        """Draw a local scale, then a value."""
        shape = self._extended_shape(torch.Size(sample_shape))
        uniform = torch.rand(shape, dtype=self.loc.dtype, device=self.loc.device)
        normal = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + self.scale * torch.tan(math.pi * (uniform - 0.5)) * normal


class RootInverseGamma(td.TransformedDistribution):
    r"""The distribution of a positive x whose square is inverse-Gamma(concentration a, rate c).

    .. math::
        p(x) = \frac{2 c^a}{\Gamma(a)} \, x^{-2a - 1} \, e^{-c / x^2}

    Example:
        >>> RootInverseGamma(torch.tensor(1.5), torch.tensor(1.5)).log_prob(torch.tensor(1.0))
        tensor(-0.0779)
    """

    arg_constraints: dict[str, constraints.Constraint] = {  # noqa: RUF012
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }

    def __init__(self, concentration: Tensor, rate: Tensor) -> None:
        self.concentration, self.rate = torch.broadcast_tensors(concentration, rate)
        square = td.InverseGamma(self.concentration, self.rate, validate_args=False)
        super().__init__(square, [td.PowerTransform(rate.new_tensor(0.5))], validate_args=False)


def scaled_exponential_integral(z: Tensor) -> Tensor:
    r"""Return :math:`f(z) = e^z E_1(z)` for ``z > 0``: a power series below 1, a continued fraction above.

    The gradient is :math:`f' = f - 1/z`, so that none of the terms is kept for it.

    Example:
        >>> scaled_exponential_integral(torch.tensor([0.5, 5.0]))
        tensor([0.9229, 0.1704])
    """
    return _ScaledExponentialIntegral.apply(z.clamp_min(torch.finfo(z.dtype).tiny))


class _ScaledExponentialIntegral(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor) -> Tensor:
        terms, depth = (18, 50) if z.dtype == torch.float64 else (11, 20)
        small, large = z.clamp_max(1.0), z.clamp_min(1.0)
        term, series = torch.ones_like(small), torch.zeros_like(small)
        for n in range(1, terms + 1):
            term = -term * small / n
            series = series - term / n
        power = small.exp() * (series - small.log() - np.euler_gamma)
        tail = torch.zeros_like(large)
        for n in range(depth, 0, -1):
            tail = n * n / (large + 2 * n + 1 - tail)
        return torch.where(z < 1, power, 1 / (large + 1 - tail))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        z, f = ctx.saved_tensors
        # For large z the difference f - 1/z cancels; there it is its asymptotic series.
        x = 1 / z.clamp_min(100.0)
        series = torch.zeros_like(x)
        for n in range(10, 0, -1):
            series = n * x * (1 - series)
        return gradient * torch.where(z < 100, f - 1 / z, -series * x)
