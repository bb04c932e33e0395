"""Chains of whole networks: the posterior is the states that were kept."""

from torch import Generator, Tensor

from slimbayes.ensembles._kept_samples import NO_SAMPLE, KeepsSamples
from slimbayes.ensembles._weight_posterior import WeightPosterior
from slimbayes.ensembles._without_replacement import without_replacement


class ChainPosterior(KeepsSamples, WeightPosterior):
    """The last states of each member's chain, with the running statistics that they had.

    Args:
        members: Chains.
        keep: States to keep of each.
        like: A state vector, ``(size,)``, whose type and device the kept ones have.

    Example:
        >>> import torch
        >>> posterior = ChainPosterior(2, keep=3, like=torch.zeros(5))
        >>> for step in range(4):
        ...     posterior.take(torch.full((2, 5), float(step)))
        >>> posterior.location()[0], posterior.hold(2, 3, torch.Generator().manual_seed(0))[:, 0]
        (tensor([2., 2., 2., 2., 2.]), tensor([2., 3., 1., 3., 1., 2.]))
    """

    def __init__(self, members: int, keep: int, like: Tensor) -> None:
        super().__init__(members, like.numel())
        self.make_room(like.expand(members, -1), keep)

    def absorb(self, states: Tensor) -> None:
        """Keep the states."""
        self.store(states)

    def sample(self, samples: int, generator: Generator | None) -> Tensor:
        """Pick ``(members, samples, size)`` of the kept states, without replacement."""
        positions = without_replacement(self.members, self.number, samples, generator, self.kept.device)
        return self.at(positions).unflatten(0, (self.members, samples))

    def location(self) -> Tensor:
        """Return the mean of the kept states, ``(members, size)``."""
        return self.kept_mean()

    @property
    def scale(self) -> Tensor:
        """Their standard deviation, ``(members, size)``."""
        return self.kept_std()

    def not_ready(self) -> str:
        """Return what to do about an empty chain."""
        return NO_SAMPLE
