"""What the last layer of a regression says: the distribution that each draw predicts."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize
from torch import Tensor

from slimbayes.likelihoods import Gaussian, GaussianMixture, Likelihood, Quantile, StudentT
from slimbayes.sklearn._distribution import Kernel, normal, student_t, uniform

#: Levels of the quantile head.
LEVELS = (0.01, 0.025, 0.05, *(round(0.1 * k, 1) for k in range(1, 10)), 0.95, 0.975, 0.99)
#: Degrees of freedom of the Student-t head, and components of the mixture head.
DEGREES, COMPONENTS = 4.0, 3

Parts = tuple[Tensor, Tensor, Tensor]


class Head(NamedTuple):
    """A head.

    Attributes:
        likelihood: Makes what it is trained by.
        parts: Returns weights, locations and scales, each ``(draws, components, rows)``, of outputs.
        kernel: What is at each location.
    """

    likelihood: Callable[[], Likelihood]
    parts: Callable[[Any, Tensor], Parts]
    kernel: Callable[[], Kernel]


def _location_and_scale(likelihood: Any, outputs: Tensor) -> Parts:
    location, scale = (part.movedim(-1, 1) for part in likelihood.location_and_scale(outputs))
    return torch.ones_like(location), location, scale


def _mixture(likelihood: Any, outputs: Tensor) -> Parts:
    log_weights, means, stds = (part.movedim(-1, 1) for part in likelihood.parts(outputs))
    return log_weights.exp(), means, stds


def _between_quantiles(likelihood: Any, outputs: Tensor) -> Parts:
    """Return uniform pieces between neighbouring quantiles; the tails go on as dense as the pieces beside them."""
    levels = outputs.new_tensor(likelihood.levels)
    quantiles = outputs.sort(-1).values  # nothing in training keeps them from crossing
    dense = (quantiles.diff(dim=-1) / levels.diff()).clamp_min(1e-6)
    low = quantiles[..., :1] - levels[0] * dense[..., :1]
    high = quantiles[..., -1:] + (1 - levels[-1]) * dense[..., -1:]
    edges = torch.cat([low, quantiles, high], -1).movedim(-1, 1)
    share = torch.cat([levels[:1], levels.diff(), 1 - levels[-1:]])
    width = edges.diff(dim=1).clamp_min(1e-6)
    return share.view(1, -1, 1).expand_as(width), (edges[:, :-1] + edges[:, 1:]) / 2, width


HEADS = {
    "gaussian": Head(lambda: Gaussian(noise="predicted"), _location_and_scale, normal),
    "student_t": Head(lambda: StudentT(df=DEGREES, noise="predicted"), _location_and_scale, lambda: student_t(DEGREES)),
    "mixture": Head(lambda: GaussianMixture(COMPONENTS), _mixture, normal),
    "quantile": Head(lambda: Quantile(LEVELS), _between_quantiles, uniform),
    "gaussian_constant": Head(lambda: Gaussian(noise="learned", initial=0.5), _location_and_scale, normal),
}


def widened(parts: Parts, factor: float) -> Parts:
    """Return the parts of each draw with all distances from the draw's mean multiplied.

    Example:
        >>> one = torch.ones(1, 1, 1)
        >>> [part.item() for part in widened((one, 5 * one, one), 2.0)]
        [1.0, 5.0, 2.0]
    """
    weights, locations, scales = parts
    mean = (weights * locations).sum(1, keepdim=True)
    return weights, mean + factor * (locations - mean), factor * scales


def log_density(parts: Parts, kernel: Kernel, targets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mixture's log-density at each target."""
    weights, locations, scales = (part.double().numpy() for part in parts)
    density = (weights * kernel.pdf((targets - locations) / scales) / scales).sum(1).mean(0)
    return np.log(np.maximum(density, np.finfo(np.float64).tiny))


def best_width(
    parts: Parts, kernel: Kernel, targets: NDArray[np.float64], weights: NDArray[np.float64] | None
) -> float:
    """Return the factor of ``widened`` with the largest likelihood of some targets, between 1/5 and 5.

    Example:
        >>> one, targets = torch.ones(1, 1, 1000), 2 * np.random.default_rng(0).standard_normal(1000)
        >>> round(best_width((one, 0 * one, one), normal(), targets, None), 1)
        2.0
    """

    def loss(exponent: float) -> float:
        scores = log_density(widened(parts, float(np.exp(exponent))), kernel, targets)
        return -float(np.average(scores, weights=weights))

    bound = float(np.log(5))
    return float(np.exp(optimize.minimize_scalar(loss, bounds=(-bound, bound), method="bounded").x))
