"""The samples that a chain keeps: the last few of each member."""

from typing import Any

import torch
from torch import Tensor

from slimbayes._checks import check_count

NO_SAMPLE = (
    "There is nothing to draw from: a chain with no kept sample. Call model.collect() once the chains have settled, "
    "and then every so often; samples=0 gives the chains as they are."
)


class KeepsSamples:
    """Mixin for a module that keeps the last values of each member; the oldest makes room for the newest.

    Attributes:
        kept: ``(members, keep, *shape)``, of which the first ``number`` are filled.
        collected: Values that have been stored so far, counted by the module.
    """

    kept: Tensor
    collected: int

    def make_room(self, values: Tensor, keep: int) -> None:
        """Make room for ``keep`` values like ``values``, ``(members, *shape)``."""
        check_count("keep", keep, 1, "Give the number of samples to keep of each chain, such as 20.")
        module: Any = self
        module.register_buffer("kept", values.detach().new_zeros(len(values), keep, *values.shape[1:]))

    def store(self, values: Tensor) -> None:
        """Store the members' values, ``(members, *shape)``."""
        self.kept[:, self.collected % self.kept.shape[1]] = values.detach()

    @property
    def number(self) -> int:
        """Samples of each member that are there."""
        return min(self.collected, self.kept.shape[1])

    def at(self, positions: Tensor) -> Tensor:
        """Return the values at ``positions``, ``(members, samples)``, as ``(members * samples, *shape)``."""
        members = torch.arange(len(self.kept), device=self.kept.device).unsqueeze(1)
        return self.kept[members, positions].flatten(0, 1)

    def in_order(self) -> Tensor:
        """Return the positions of all values, oldest first: ``(members, number)``."""
        oldest = self.collected % self.kept.shape[1] if self.collected > self.number else 0
        order = (torch.arange(self.number, device=self.kept.device) + oldest) % max(self.number, 1)
        return order.expand(len(self.kept), -1)

    def kept_mean(self) -> Tensor:
        """Return the mean of the kept values, ``(members, *shape)``."""
        return self.kept[:, : self.number].mean(1)

    def kept_std(self) -> Tensor:
        """Return their standard deviation; zero where fewer than two are kept."""
        if self.number == 0:
            return torch.zeros_like(self.kept[:, 0])
        return self.kept[:, : self.number].std(1, correction=0)
