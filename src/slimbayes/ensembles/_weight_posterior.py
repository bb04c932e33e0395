"""What posteriors over the states of whole networks have in common: they are made of states met in training."""

from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Generator, Tensor, nn

from slimbayes.layers.base import Stochastic


class WeightPosterior(nn.Module, Stochastic):
    """A posterior over state vectors (see ``StateLayout``), one for each member.

    Attributes:
        members: Networks that train side by side, each with a posterior of its own.
        size: Length of a state vector.
        collected: States that have been taken into the posterior so far.
        needed: States without which the posterior cannot be drawn from.
    """

    count: Tensor
    needed: int = 1

    def __init__(self, members: int, size: int) -> None:
        super().__init__()
        self.members, self.size = members, size
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        # A plain number besides, because torch.compile cannot branch on a tensor.
        self.collected = 0
        self.register_load_state_dict_post_hook(read_count)

    @property
    def ready(self) -> bool:
        """Whether enough states have been collected."""
        return self.collected >= self.needed

    def take(self, states: Tensor) -> None:
        """Take in the states that the members have now, ``(members, size)``."""
        self.absorb(states)
        self.collected += 1
        self.count.fill_(self.collected)

    @abstractmethod
    def absorb(self, states: Tensor) -> None:
        """Do what this posterior does with states, ``(members, size)``; ``collected`` is the number before."""

    @abstractmethod
    def not_ready(self) -> str:
        """Return what to tell a user who draws too early."""

    @abstractmethod
    def sample(self, samples: int, generator: Generator | None) -> Tensor:
        """Draw ``(members, samples, size)``."""

    def without_replacement(self, anew: bool = False) -> AbstractContextManager[None]:
        """Return a context within which draws that are stored come without replacement; see ``WithoutReplacement``.

        Args:
            anew: A new one even within another.
        """
        return nullcontext()

    @abstractmethod
    def location(self) -> Tensor:
        """Return the members' locations, ``(members, size)``."""

    def hold(self, members: int, samples: int, generator: Generator | None) -> Tensor:
        """Draw one state for each member and sample: ``(members * samples, size)``."""
        self.check_ready()
        return self.sample(samples, generator).flatten(0, 1)

    def at_location(self, member: int) -> Tensor:
        """Return the location of one member, ``(size,)``."""
        self.check_ready()
        return self.location()[member]

    def check_ready(self) -> None:
        """Raise unless enough states have been collected."""
        if not self.ready:
            raise RuntimeError(self.not_ready())

    def kl(self) -> Tensor:
        """Return 0: the posterior was not found by minimising a KL."""
        return torch.zeros((), device=self.count.device)

    def log_scale_gradients(self) -> list[Tensor]:
        """Return none: no scale is trained."""
        return []


def read_count(part: Any, incompatible: object) -> None:
    """Take up the count of a part whose state has just been loaded."""
    part.collected = int(part.count)
