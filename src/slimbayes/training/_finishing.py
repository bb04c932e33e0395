"""What is left to do once training is over: inference in a subspace, batch-norm statistics of draws."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slimbayes.methods.registry import method_of
from slimbayes.objective import ELBO
from slimbayes.training.batches import Batches
from slimbayes.training.config import Collect


@dataclass(frozen=True)
class Again:
    """An epoch's inputs and targets, the same each time that it is gone through.

    Attributes:
        batches: The training examples, all of them.
        epoch: Which order and augmentation they have.
    """

    batches: Batches
    epoch: int

    def __iter__(self) -> Iterator[Any]:
        return ((part.inputs, part.targets) for part in self.batches.epoch(self.epoch))


def complete(elbo: ELBO, examples: Again, config: Collect, seed: int, quiet: bool) -> None:
    """Do what a method has left to do, such as inference in a subspace; most have nothing.

    Args:
        elbo: The objective of the trained model.
        examples: The training examples.
        config: Draws to make, and how to find a subspace's posterior.
        seed: Of the randomness.
        quiet: Show no progress.
    """
    method = method_of(elbo.model)
    if method is not None and method.finish is not None:
        method.finish(elbo, examples, draws=config.draws, inference=config.inference, seed=seed, quiet=quiet)
