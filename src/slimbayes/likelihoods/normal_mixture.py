"""The likelihood of real targets that have several likely values: a mixture of Gaussians."""

import math
from typing import Any

import torch
from torch import Tensor

from slimbayes._checks import check_count
from slimbayes.families import softplus_scale
from slimbayes.likelihoods.base import Likelihood, check_finite

__all__ = ["GaussianMixture"]


class GaussianMixture(Likelihood):
    r"""Real targets: a mixture density network (Bishop 1994), one target for each example.

    .. math::
        p(y) = \sum_{c=1}^C \pi_c N(y \mid \mu_c, \sigma_c^2), \quad \pi = \text{softmax}(a), \quad
        \sigma_c = \text{softplus}(\rho_c) + 10^{-7}

    Args:
        components: C. The network's last axis holds C logits a, then C means, then C rhos.

    Shape:
        - Outputs: ``(draws, batch, 3 * components)``. Targets: ``(batch,)`` or ``(batch, 1)``.

    Example:
        >>> likelihood = GaussianMixture(components=2)
        >>> outputs = torch.tensor([[[0.0, 0.0, -1.0, 1.0, -3.0, -3.0]]])
        >>> [round(part.item(), 3) for part in likelihood.moments(outputs)]
        [0.0, 1.001]
    """

    name = "gaussian_mixture"

    def __init__(self, components: int = 3) -> None:
        super().__init__()
        check_count("components", components)
        self.components = components

    def parts(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-weights, means and standard deviations, each ``(draws, batch, components)``."""
        if outputs.dim() != 3 or outputs.shape[-1] != 3 * self.components:
            raise ValueError(
                f"Expected outputs of shape (draws, batch, {3 * self.components}), a logit, a mean and a rho for each "
                f"of {self.components} components, but got {tuple(outputs.shape)}. Give the network so many outputs."
            )
        logits, means, rhos = outputs.chunk(3, -1)
        return logits.log_softmax(-1), means, softplus_scale(rhos)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        targets = targets.squeeze(-1) if targets.dim() == 2 and targets.shape[-1] == 1 else targets
        if targets.shape != outputs.shape[1:2]:
            raise ValueError(
                f"Expected argument `targets` to have the shape {tuple(outputs.shape[1:2])}, one number for each "
                f"example, but got {tuple(targets.shape)}. Reshape them."
            )
        check_finite(targets)
        log_weights, means, stds = self.parts(outputs)
        distances = (targets.unsqueeze(-1) - means) / stds
        each = log_weights - 0.5 * distances.square() - stds.log() - 0.5 * math.log(2 * math.pi)
        return each.logsumexp(-1)

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        log_weights, means, stds = self.parts(outputs)
        weights = log_weights.exp()
        mean = (weights * means).sum(-1, keepdim=True)
        variance = (weights * (stds.square() + (means - mean).square())).sum(-1, keepdim=True)
        return mean, variance.sqrt()

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:  # noqa: D102
        log_weights, means, stds = self.parts(outputs)
        return (log_weights.exp() * torch.special.ndtr((values - means) / stds)).sum(-1, keepdim=True)

    def outputs_for(self, targets: int) -> int:  # noqa: D102
        if targets != 1:
            raise ValueError(
                f"The {self.name} likelihood is of one target for each example, but got {targets}. Train a model for "
                "each, or use likelihood='gaussian'."
            )
        return 3 * self.components

    def spec(self) -> dict[str, Any]:  # noqa: D102
        return {"name": self.name, "components": self.components}
