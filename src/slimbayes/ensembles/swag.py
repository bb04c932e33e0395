"""SWAG (Maddox et al. 2019): a Gaussian around the mean of the weights that SGD passes through."""

import torch
from torch import Generator, Tensor

from slimbayes._checks import check_number
from slimbayes.ensembles._refreshed_posterior import RefreshedPosterior
from slimbayes.ensembles._seeded_noise import seeded_noise
from slimbayes.families import Normal

__all__ = ["SwagPosterior"]


class SwagPosterior(RefreshedPosterior):
    r"""Diagonal plus low-rank Gaussian of the snapshots (Maddox et al. 2019, Eq. 1 and Algorithm 1).

    .. math::
        \theta = \bar\theta + \tfrac{1}{\sqrt2} \Sigma_{diag}^{1/2} z_1 + \tfrac{1}{\sqrt{2 (R - 1)}} \hat D z_2,
        \quad z_1 \sim N(0, I_P), \; z_2 \sim N(0, I_R), \quad
        \Sigma_{diag} = \mathrm{diag}(\overline{\theta^2} - \bar\theta^2),

    with the R last deviations in the columns of :math:`\hat D`. The variance is summed up by Welford's recurrence,
    which equals the difference above without its cancellation, and whose terms are never negative.

    Args:
        members: Networks that train side by side.
        like: A state vector, ``(size,)``, whose type and device the posterior takes.
        weights: Number P of parameters.
        rank: Most deviations to keep; with 0, the covariance is :math:`\Sigma_{diag}` alone (SWAG-Diagonal).
        has_norms: Whether the network has running statistics.
        factor: Multiplies each draw's distance from the mean.

    Example:
        >>> posterior = SwagPosterior(1, torch.zeros(2), weights=2, rank=2, has_norms=False)
        >>> posterior.take(torch.tensor([[1.0, 1.0]]))
        >>> posterior.take(torch.tensor([[3.0, 1.0]]))
        >>> posterior.location(), posterior.variance(), posterior.hold(1, 4, None).shape
        (tensor([[2., 1.]]), tensor([[1., 0.]]), torch.Size([4, 2]))
    """

    squares: Tensor

    def __init__(
        self, members: int, like: Tensor, weights: int, rank: int, has_norms: bool, factor: float = 1.0
    ) -> None:
        if rank == 1:
            raise ValueError(
                "Expected argument `rank` to be 0 or at least 2, but got 1: one deviation has no covariance. Use 0 for "
                "the diagonal alone."
            )
        check_number("scale", factor, low=0.0, remedy="It multiplies the spread of the draws; 1 is the paper's.")
        super().__init__(members, like, weights, rank, has_norms)
        self.factor = factor
        self.register_buffer("squares", self.mean.new_zeros(members, weights))

    def absorb(self, states: Tensor) -> None:
        """Take the states into mean, variance and deviations."""
        step = (states - self.mean)[:, : self.weights]
        self.squares += step.square() * (self.collected / (self.collected + 1))
        super().absorb(states)

    def variance(self) -> Tensor:
        r"""Return :math:`\Sigma_{diag}`, ``(members, P)``."""
        return self.squares / max(self.collected, 1)

    def centre(self) -> Tensor:
        """Return the mean of the parameters, ``(members, P)``."""
        return self.mean[:, : self.weights]

    def at(self, noise: Tensor) -> Tensor:
        """Return the draw that is made of ``z_1`` and ``z_2``, ``(members, P + rank)``."""
        z1, z2 = noise[:, : self.weights], noise[:, self.weights :]
        if self.keep == 0:
            return self.centre() + self.factor * self.variance().sqrt() * z1
        low_rank = torch.einsum("mr,mrp->mp", z2, self.deviations) * (self.columns - 1) ** -0.5
        return self.centre() + self.factor * 0.5**0.5 * (self.variance().sqrt() * z1 + low_rank)

    def new(self, generator: Generator | None) -> Tensor:
        """Draw the parameters of each member, ``(members, P)``."""
        noise = Normal().noise((self.members, self.weights + self.keep), self.mean, generator)
        return self.at(noise.to(self.mean.dtype))

    def again(self, seeds: Tensor) -> Tensor:
        """Return the draws of seeds ``(members,)``."""
        return self.at(seeded_noise(seeds, self.weights + self.keep).to(self.mean.dtype))

    @property
    def scale(self) -> Tensor:
        """Standard deviations, ``(members, size)``; those of running statistics are not known, and 0."""
        variance = self.variance()
        if self.keep:
            variance = (variance + self.deviations.square().sum(1) / max(self.columns - 1, 1)) / 2
        spread = torch.zeros_like(self.mean)
        spread[:, : self.weights] = self.factor * variance.sqrt()
        return spread
