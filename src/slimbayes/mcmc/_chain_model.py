"""Models whose draws are samples that a chain kept."""

from contextlib import AbstractContextManager
from typing import Any, Self

import torch
from torch import Generator, Tensor

from slimbayes._checks import check_count
from slimbayes.ensembles._kept_samples import NO_SAMPLE, KeepsSamples
from slimbayes.ensembles._without_replacement import WithoutReplacement
from slimbayes.model import BayesianModel


class ChainModel(BayesianModel):
    """A model whose members are chains. Made by ``sb.sgmcmc``.

    In training mode its output is that of the chains' states; in evaluation that of kept samples. A draw is joint: it
    is the state that a member's chain had at one time, in all its parts and for all examples. So ``noise`` makes no
    difference.

    Attributes:
        stored_draws: Says which kept sample comes next.
    """

    stored_draws: WithoutReplacement

    @classmethod
    def adopt(cls, model: BayesianModel) -> Self:
        """Turn a model all of whose random parts keep samples, in place, into one of chains."""
        model.__class__ = cls
        assert isinstance(model, cls)
        model.stored_draws = WithoutReplacement()
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
        with self._without_replacement():
            number, order = parts[0].number, self.stored_draws
            positions = [order.next(self.members, number, generator, self.device) for _ in range(samples)]
        return {part.name: part.at(torch.stack(positions, 1)) for part in parts}

    def kept_draw(self) -> dict[str, Tensor]:
        """Return a draw with all kept samples, for ``model(x, draw=...)``; those of a member oldest first."""
        if not self.ready:
            raise RuntimeError(NO_SAMPLE)
        return {part.name: part.at(part.in_order()) for part in self._chains()}

    def _without_replacement(self) -> AbstractContextManager[None]:
        return self.stored_draws.context(anew=self.sampling.rows is not None)

    def _chains(self) -> list[Any]:
        return [part for part in self.stochastic() if isinstance(part, KeepsSamples)]
