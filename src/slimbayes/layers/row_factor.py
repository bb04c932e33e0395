"""A random vector for each row of a layer's input: what rank-1 layers ask of their factors."""

from abc import abstractmethod
from typing import Any

from torch import Generator, Tensor

from slimbayes.layers.base import Stochastic

__all__ = ["RowFactor"]


class RowFactor(Stochastic):
    """A vector of channel values that members, or rows, draw for themselves."""

    @property
    @abstractmethod
    def members(self) -> int:
        """Mixture components."""

    @property
    @abstractmethod
    def random(self) -> bool:
        """Whether draws differ from the location."""

    @property
    @abstractmethod
    def location(self) -> Tensor:
        """The values at each member's location: ``(members, [rank,] channels)``."""

    @abstractmethod
    def _draw(self, groups: int, generator: Generator | None) -> Tensor:
        """Draw ``(groups, [rank,] channels)`` values, those of a member together."""

    def _draw_for_rows(self, rows: int, generator: Generator | None) -> Any:
        """Draw a vector for each row: ``(rows, [rank,] channels)``, or something whose ``values()`` are that."""
        return self._draw(rows, generator)

    def values(self, rows: int, layer: str) -> tuple[Tensor, ...]:
        """Return the draws that ``rows`` rows take, one tensor ``(groups, channels)`` for each rank.

        Args:
            rows: Rows of the layer's input.
            layer: The layer's label, for the error message.
        """
        drawn = self.drawn(rows, layer)
        drawn = drawn if isinstance(drawn, Tensor) else drawn.values()
        return (drawn,) if drawn.dim() == 2 else drawn.unbind(1)

    def drawn(self, rows: int, layer: str) -> Any:
        """Return the draws of ``values`` as they are, see ``_draw_for_rows``."""
        sampling, name = self.sampling, self.name
        held, found = sampling.held, sampling.drawn
        if held is not None and name in held:
            return held[name]
        if found is not None and name in found:
            return found[name]
        if not self.random or sampling.samples == 0:
            return self.location
        groups = sampling.groups(self.members, rows)
        if groups % self.members:
            raise ValueError(
                f"Layer {layer} got {groups} rows, which is no multiple of its {self.members} members. Repeat "
                "the batch once for each member, as BayesianModel does: x.repeat(members, ...)."
            )
        shared = sampling.noise == "shared"
        drawn = (self._draw if shared else self._draw_for_rows)(groups, sampling.generator)
        if found is not None:
            found[name] = drawn
        return drawn

    def hold(self, members: int, samples: int, generator: Generator | None) -> Tensor:
        """Draw one value per member and sample: ``(members * samples, [rank,] channels)``."""
        if samples == 0 or not self.random:
            return self.location.repeat_interleave(max(samples, 1), 0)
        return self._draw(self.members * samples, generator)

    def at_location(self, member: int) -> Tensor:
        """Return one member's location: ``([rank,] channels)``."""
        return self.location[member]
