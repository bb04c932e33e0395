"""Priors of factors seen as priors of weights: section 3.2 and Figure 1."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from slimbayes._checks import check_number
from slimbayes.analysis._figures import new_axes
from slimbayes.families import Family, InverseGamma, LogNormal
from slimbayes.priors import Prior

__all__ = ["induced_weight_density", "plot_induced_weight_priors"]


def induced_weight_density(
    weights: Tensor, prior: Prior | str | dict[str, Any] | Family, weight_std: float = 1.0
) -> Tensor:
    r"""Return the density of w' = w r with :math:`w \sim N(0, \sigma^2)` and r from the prior of a factor.

    .. math::
        p(w') = \int N(w' \mid 0, r^2 \sigma^2)\, p(r)\, dr

    This is Eq. 3 with s at 1. Well-known priors come out: a Student-t if r is inverse-gamma distributed, the
    horseshoe if half-Cauchy. Where the prior's density at r = 0 is positive the result has a pole at w' = 0.

    Args:
        weights: Where to evaluate.
        prior: The factor's prior; a family stands for ``Prior(family)``.
        weight_std: The standard deviation :math:`\sigma` of w.

    Shape:
        - ``weights``: ``(*)``. Output: ``(*)``.

    Example:
        >>> from slimbayes.priors import Prior
        >>> induced_weight_density(torch.tensor([0.5, 2.0]), Prior("half_cauchy", std=1.0))
        tensor([0.2336, 0.0459])
    """
    check_number("weight_std", weight_std, low=0.0)
    prior = prior if isinstance(prior, Prior) else Prior(prior)
    values = weights.detach().to(torch.float64)
    if not prior.family.random:
        return _normal_density(values, abs(prior.loc) * weight_std).to(weights.dtype)
    density = torch.zeros_like(values)
    for r, dr in _pieces(prior, values.device):
        prior_mass = prior.distribution(r).log_prob(r).detach().exp() * dr
        density += _normal_density(values.unsqueeze(-1), r.abs() * weight_std) @ prior_mass
    if not isinstance(prior.family, (LogNormal, InverseGamma)):
        density[values == 0] = math.inf
    return density.to(weights.dtype)


def _normal_density(values: Tensor, std: Tensor | float) -> Tensor:
    std = torch.as_tensor(std, dtype=values.dtype, device=values.device)
    return torch.exp(-(values / std).square() / 2) / (std * math.sqrt(2 * math.pi))


def _pieces(prior: Prior, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield points r and weights dr of trapezoidal rules that crowd, log-uniformly, at 0 and at the location.

    There the integrand bends: at 0 over the width w', at the location over that of the prior.
    """
    step = 0.1
    y = torch.arange(-40, 40, step, dtype=torch.float64, device=device)
    location = 0.0 if prior.family.positive else prior.loc
    if location:
        share = torch.sigmoid(y)
        yield location * share, abs(location) * share * torch.sigmoid(-y) * step
    side = math.copysign(1.0, location)
    beyond = y.exp()
    yield location + side * beyond, beyond * step
    if not prior.family.positive:
        yield -side * beyond, beyond * step


def plot_induced_weight_priors(
    ax: Any = None, priors: Mapping[str, Prior] | None = None, weight_std: float = 1.0
) -> Any:
    """Draw Figure 1: what priors of a factor r make of normal weights.

    Args:
        ax: Axes of matplotlib to draw on; None for new ones.
        priors: By label; None for those of the figure.
        weight_std: The standard deviation of the weights before.

    Returns:
        The axes.

    Example:
        >>> import matplotlib
        >>> matplotlib.use("Agg")
        >>> plot_induced_weight_priors().lines[0].get_label()
        'r = 1'
    """
    ax = new_axes(width=5) if ax is None else ax
    priors = _figure_1() if priors is None else priors
    # An even number of points leaves out 0, where some densities have a pole.
    weights = torch.linspace(-4, 4, 800, dtype=torch.float64) * weight_std
    for label, prior in priors.items():
        ax.plot(weights.numpy(), induced_weight_density(weights, prior, weight_std).numpy(), label=label)
    ax.set(xlabel="weight w' = w r", ylabel="density", yscale="log")
    ax.legend()
    return ax


def _figure_1() -> dict[str, Prior]:
    return {
        "r = 1": Prior("delta", mean=1.0),
        "r ~ normal(1, 1)": Prior("normal", mean=1.0, std=1.0),
        "r ~ Cauchy(1, 1)": Prior("cauchy", mean=1.0, std=1.0),
        "r² ~ inverse-gamma(3/2, 3/2)": Prior("inverse_gamma", std=1.0),
    }
