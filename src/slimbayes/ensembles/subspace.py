"""Subspace inference (Izmailov et al. 2019): a posterior over few coordinates in the plane of SGD's trajectory."""

import torch
from torch import Generator, Tensor

from slimbayes._checks import check_count, check_number
from slimbayes.ensembles._refreshed_posterior import RefreshedPosterior
from slimbayes.ensembles._seeded_noise import seeded_noise
from slimbayes.families import Normal

__all__ = ["SubspacePosterior"]


class SubspacePosterior(RefreshedPosterior):
    r"""Weights :math:`w = \hat w + P^\top z` with a posterior over z (Izmailov et al. 2019, section 3).

    :math:`\hat w` is the mean of the snapshots. :math:`P = S V^\top / \sqrt{R - 1}`, from the truncated singular value
    decomposition :math:`U S V^\top` of the R last deviations, in rows (Algorithm 2): its rows are the trajectory's
    principal directions, as long as its standard deviation along them. The algorithm has no :math:`\sqrt{R - 1}`; the
    authors' code has, and so the prior's scale does not depend on the number of snapshots.

    The posterior over z is a set of samples, of ``rank`` numbers each, or a Gaussian.

    Args:
        members: Networks that train side by side.
        like: A state vector, ``(size,)``, whose type and device the posterior takes.
        weights: Number of parameters.
        rank: Dimensions of the subspace.
        keep: Deviations to keep.
        has_norms: Whether the network has running statistics.
        prior_std: Of the prior :math:`z \sim N(0, \sigma^2 I)`.
        temperature: T of the tempered posterior :math:`p(D \mid z)^{1/T} p(z)`.

    Shape:
        - ``basis``: ``(members, rank, parameters)``. ``positions``: ``(members, samples, rank)``, without samples where
          the posterior is a Gaussian of mean ``gaussian_mean``, ``(members, rank)``, and covariance
          ``gaussian_factor @ gaussian_factor.mT``.
    """

    basis: Tensor
    positions: Tensor
    gaussian_mean: Tensor
    gaussian_factor: Tensor
    inferred_at: Tensor
    stored = (*RefreshedPosterior.stored, "positions")
    marks = (*RefreshedPosterior.marks, "inferred_at")

    def __init__(
        self,
        members: int,
        like: Tensor,
        weights: int,
        rank: int,
        keep: int,
        has_norms: bool,
        prior_std: float = 1.0,
        temperature: float = 1.0,
    ) -> None:
        check_count("rank", rank, 1)
        check_count("keep", keep, rank + 1, f"A subspace of {rank} dimensions needs that many snapshots.")
        check_number("prior_std", prior_std, low=0.0)
        check_number("temperature", temperature, low=0.0, remedy="1 is the posterior.")
        super().__init__(members, like, weights, keep, has_norms)
        self.rank, self.prior_std, self.temperature = rank, prior_std, temperature
        self.register_buffer("basis", self.mean.new_zeros(members, rank, weights))
        self.register_buffer("positions", self.mean.new_zeros(members, 0, rank))
        self.register_buffer("gaussian_mean", self.mean.new_zeros(members, rank))
        self.register_buffer("gaussian_factor", self.mean.new_zeros(members, rank, rank))

    @property
    def ready(self) -> bool:
        """Whether the posterior over z has been inferred for the snapshots that are there."""
        return super().ready and self.holds("inferred_at")

    def not_ready(self) -> str:
        """Return what to do first."""
        if not super().ready:
            return super().not_ready()
        return (
            f"There is no posterior over the subspace of the {self.collected} snapshots yet. Call "
            "sb.subspace_inference(elbo, batches) after the last model.collect()."
        )

    # ------------------------------------------------------------------ the subspace and the posterior over it

    def span(self) -> None:
        """Find the basis of the subspace."""
        _, lengths, directions = torch.linalg.svd(self.deviations[:, : self.columns], full_matrices=False)
        number = min(self.rank, lengths.shape[1])
        self.basis.zero_()
        self.basis[:, :number] = lengths[:, :number, None] * directions[:, :number] * (self.columns - 1) ** -0.5

    def set_samples(self, positions: Tensor) -> None:
        """Let the posterior be samples of z, ``(members, samples, rank)``."""
        self.positions = positions.to(self.basis)
        self.gaussian_mean.zero_()
        self.gaussian_factor.zero_()
        self._inferred()

    def set_gaussian(self, mean: Tensor, factor: Tensor) -> None:
        """Let the posterior be a Gaussian, ``(members, rank)`` and ``(members, rank, rank)``."""
        self.positions = self.basis.new_zeros(self.members, 0, self.rank)
        self.gaussian_mean.copy_(mean)
        self.gaussian_factor.copy_(factor)
        self._inferred()

    def _inferred(self) -> None:
        self.forget("refreshed_at")
        self.mark("inferred_at")

    @property
    def sampled(self) -> bool:
        """Whether the posterior is samples of z rather than a Gaussian."""
        return self.positions.shape[1] > 0

    # ------------------------------------------------------------------ draws

    def at(self, z: Tensor) -> Tensor:
        """Return the parameters at ``z``, ``(members, rank)``: ``(members, parameters)``."""
        return self.mean[:, : self.weights] + torch.einsum("mr,mrp->mp", z, self.basis)

    def centre(self) -> Tensor:
        """Return the parameters at the mean of z."""
        return self.at(self.positions.mean(1) if self.sampled else self.gaussian_mean)

    def new(self, generator: Generator | None) -> Tensor:
        """Draw z of each member: a Gaussian one, or the next of the samples."""
        if self.sampled:
            number, device = self.positions.shape[1], self.positions.device
            return self.again(self.stored_draws.next(self.members, number, generator, device))
        return self._of_noise(Normal().noise((self.members, self.rank), self.basis, generator))

    def again(self, seeds: Tensor) -> Tensor:
        """Return the parameters of seeds ``(members,)``, the positions of samples of z."""
        if self.sampled:
            return self.at(self.positions[torch.arange(self.members, device=seeds.device), seeds])
        return self._of_noise(seeded_noise(seeds, self.rank))

    def _of_noise(self, noise: Tensor) -> Tensor:
        deviation = (self.gaussian_factor @ noise.to(self.basis.dtype).unsqueeze(-1)).squeeze(-1)
        return self.at(self.gaussian_mean + deviation)

    def new_seeds(self, samples: int, seed: int) -> Tensor:
        """Return seeds; or positions of samples of z, as many different ones as there are."""
        if not self.sampled:
            return super().new_seeds(samples, seed)
        order = torch.randperm(self.positions.shape[1], generator=Generator().manual_seed(seed))
        return order[:samples].expand(self.members, -1).contiguous()

    @property
    def scale(self) -> Tensor:
        """Standard deviations, ``(members, size)``; those of running statistics are not known, and 0."""
        factor = self.gaussian_factor
        if self.sampled:
            centred = self.positions - self.positions.mean(1, keepdim=True)
            factor = centred.mT / self.positions.shape[1] ** 0.5
        spread = torch.zeros_like(self.mean)
        spread[:, : self.weights] = (factor.mT @ self.basis).square().sum(1).sqrt()
        return spread
