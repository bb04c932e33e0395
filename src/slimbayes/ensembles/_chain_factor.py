"""Chains of rank-1 factors: each member's factor is a chain's state, its posterior the states that were kept."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from slimbayes.ensembles._kept_samples import KeepsSamples
from slimbayes.ensembles._weight_posterior import read_count
from slimbayes.ensembles._without_replacement import without_replacement
from slimbayes.layers.base import Collects
from slimbayes.layers.rank1 import Factor, FactorOptions


@dataclass
class KeptOptions(FactorOptions):
    """Describes the factors of chains to the rank-1 layers, which do the rest.

    Args:
        family: A point: the chain's state.
        prior_family: Normal; see ``KeptFactor.prior``.
        member_bias: The biases belong to the base, which the chains share.
        keep: Samples to keep of each chain.
    """

    family: Any = "delta"
    prior_family: Any = "normal"
    member_bias: bool = False
    keep: int = 20

    def factor(self, channels: int, summed: bool, device: Any, dtype: torch.dtype) -> Any:
        """Return a new factor that keeps samples."""
        return KeptFactor(channels, self, summed, device, dtype)


class KeptFactor(KeepsSamples, Collects, Factor):
    """A factor whose ``loc`` is where each member's chain stands, and which keeps the last samples of it.

    In training mode the chains' states run; in evaluation the kept samples, or their mean. A draw of the model takes
    the same kept sample of all factors, see ``ChainModel``; one of a layer that stands alone does not.

    Args:
        channels: Length of the vector.
        options: The factor's description.
        summed: See ``Factor``.
        device: Where to put it.
        dtype: Its type.

    Attributes:
        prior: The prior of the chain's target, which the sampler adds: the ELBO would count it ``members`` times.

    Shape:
        - ``loc``: ``(members, [rank,] channels)``. ``kept``: ``(members, keep, [rank,] channels)``.

    Example:
        >>> factor = KeptFactor(8, KeptOptions(members=4, keep=3))
        >>> factor.collect()
        >>> factor.kept.shape, factor.collected, factor.ready
        (torch.Size([4, 3, 8]), 1, True)
    """

    count: Tensor

    def __init__(
        self,
        channels: int,
        options: KeptOptions,
        summed: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(channels, options, summed, device, dtype)
        self.make_room(self.loc, options.keep)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64, device=device))
        self.collected = 0
        self.register_load_state_dict_post_hook(read_count)

    def _initial_loc(
        self, shape: tuple[int, ...], options: FactorOptions, share: int, dtype: torch.dtype | None
    ) -> Tensor:
        if options.init != "normal":
            return super()._initial_loc(shape, options, share, dtype)
        return options.neutral / share + options.init_spread * torch.randn(shape)  # the prior is as wide for any rank

    def collect(self) -> None:
        """Keep the chains' present states."""
        self.store(self.loc)
        self.collected += 1
        self.count.fill_(self.collected)

    @property
    def ready(self) -> bool:
        """Whether a sample has been kept."""
        return self.collected > 0

    @property
    def random(self) -> bool:
        """Whether draws are kept samples rather than the chains' states."""
        return not self.training and self.ready  # in this order: compiled code is bound to the count that it has read

    @property
    def location(self) -> Tensor:
        """The mean of the kept samples; the chains' states in training, or if there is none yet."""
        return self.kept_mean() if self.random else self.loc

    def at_location(self, member: int) -> Tensor:
        """Return the mean of one member's kept samples, or its state if there is none yet, in either mode."""
        return (self.kept_mean() if self.ready else self.loc)[member]

    @property
    def scale(self) -> Tensor:
        """Standard deviation of the kept samples."""
        return self.kept_std()

    def _draw(self, groups: int, generator: Generator | None) -> Tensor:
        samples = groups // self.members
        return self.at(without_replacement(self.members, self.number, samples, generator, self.kept.device))

    def kl(self) -> Tensor:
        """Return zeros: the posterior was not found by minimising a KL."""
        return self.loc.new_zeros(self.members)
