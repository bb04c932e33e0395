"""Models whose draws are samples that a chain kept."""

from contextlib import AbstractContextManager
from typing import Any, Self

import torch
from torch import Generator, Tensor

from slimbayes._checks import check_count
from slimbayes.ensembles.deck import Deck
from slimbayes.ensembles.kept import NO_SAMPLE, Keeps
from slimbayes.model import BayesianModel

__all__ = ["ChainModel"]


class ChainModel(BayesianModel):
    """A model whose members are chains. Made by ``sb.sgmcmc``.

    In training mode its output is that of the chains' states; in evaluation that of kept samples. A draw is joint: it
    is the state that a member's chain had at one time, in all its parts and for all examples. So ``noise`` makes no
    difference.

    Attributes:
        deck: Deals kept samples to draws.
    """

    deck: Deck

    @classmethod
    def adopt(cls, model: BayesianModel) -> Self:
        """Turn a model all of whose random parts keep samples, in place, into one of chains."""
        model.__class__ = cls
        assert isinstance(model, cls)
        model.deck = Deck()
        return model

    @property
    def coherent(self) -> bool:
        """True: a draw is one state of the chains, for all examples."""
        return True

    def draw(self, samples: int = 1, generator: Generator | None = None) -> dict[str, Tensor]:
        """Pick kept samples, each member its own, without replacement until all have been picked.

        Returns:
            By name, tensors of shape ``(members * samples, *shape of the part)``.
        """
        check_count("samples", samples, 1)
        if not self.ready:
            raise RuntimeError(NO_SAMPLE)
        parts = self._chains()
        with self._dealing():
            dealt = [self.deck.deal(self.members, parts[0].number, generator, self.device) for _ in range(samples)]
        picks = torch.stack(dealt, 1)
        return {part.name: part.at(picks) for part in parts}

    def kept_draw(self) -> dict[str, Tensor]:
        """Return a draw with all kept samples, for ``model(x, draw=...)``; those of a member oldest first."""
        if not self.ready:
            raise RuntimeError(NO_SAMPLE)
        return {part.name: part.at(part.in_order()) for part in self._chains()}

    def _dealing(self) -> AbstractContextManager[None]:
        return self.deck.open()

    def _chains(self) -> list[Any]:
        return [part for part in self.stochastic() if isinstance(part, Keeps)]
