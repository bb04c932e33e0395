"""Factors that are drawn together: a few calls for all of a network's instead of a few for each."""

from collections.abc import Sequence
from typing import Any

from torch import Generator, Tensor

from slimbayes.layers.factor import Factor
from slimbayes.layers.flips import Flipped, rows_of_a_draw, sharing, sign_bytes
from slimbayes.layers.scaled_noise import scaled_noise
from slimbayes.sampling import Sampling

__all__ = ["FactorGroup", "alike"]


class FactorGroup:
    """Factors that are alike by their ``kind``.

    Args:
        factors: At least one.

    Attributes:
        names: Of the factors.
        widths: Their channels.

    Example:
        >>> from slimbayes.layers.factor import FactorOptions
        >>> group = FactorGroup([Factor(8, FactorOptions(members=4)), Factor(3, FactorOptions(members=4))])
        >>> [drawn.shape for drawn in group.draw()]
        [torch.Size([4, 8]), torch.Size([4, 3])]
    """

    def __init__(self, factors: list[Factor]) -> None:
        self.names = [factor.name for factor in factors]
        self.family, self.members = factors[0].family, factors[0].members
        self.widths = [factor.loc.shape[1] for factor in factors]
        self.channels = sum(self.widths)
        # A module takes its time to find one in there.
        self._parameters: list[dict[str, Any]] = [factor._parameters for factor in factors]

    def _all(self, name: str) -> list[Any]:
        return [own[name] for own in self._parameters]

    def flips(self, rows: int, sampling: Sampling) -> bool:
        """Tell whether ``rows`` rows are to share draws, see ``layers.flips``: whether that saves many numbers."""
        return sharing(rows, self.channels, self.members, self._parameters[0]["loc"], sampling) > 1

    def draw_for_rows(self, rows: int, sampling: Sampling) -> list[Flipped]:
        """Draw for rows that share draws."""
        share = rows_of_a_draw(rows // (self.members * sampling.samples))
        deviations = self._deviations(rows // (self.members * share), sampling.generator)
        signs = sign_bytes((share, self.channels), sampling.generator).split(self.widths, 1)
        return [Flipped(*drawn) for drawn in zip(self._all("loc"), deviations, signs, strict=True)]

    def draw(self, generator: Generator | None = None) -> tuple[Tensor, ...]:
        """Draw one value for each member, ``(members, channels)``, of each factor."""
        return self._deviations(1, generator, self._all("loc"))

    def _deviations(self, draws: int, generator: Generator | None, locs: Sequence[Tensor] = ()) -> tuple[Tensor, ...]:
        """Return scale * noise of each factor, ``(members * draws, channels)``, with ``locs`` added to it."""
        rhos = self._all("rho")
        return scaled_noise(self.family.noise((self.members, draws, self.channels), rhos[0], generator), rhos, locs)


def alike(factors: list[Factor]) -> list[FactorGroup]:
    """Return factors that can be drawn together, by ``kind``; those that must be drawn alone are left out."""
    groups: dict[Any, list[Factor]] = {}
    for factor in factors:
        if type(factor) is Factor and (kind := factor.kind) is not None:  # not one that a parametrisation has changed
            groups.setdefault(kind, []).append(factor)
    return [FactorGroup(group) for group in groups.values()]
