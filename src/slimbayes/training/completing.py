"""What is left to do for a law once training is over: inference in its subspace, batch-norm statistics of its draws."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slimbayes.methods.subspace_inference import subspace_inference
from slimbayes.objective import ELBO
from slimbayes.training.batches import Batches
from slimbayes.training.config import Collect

__all__ = ["Again", "complete"]


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
    """Finish the law of swag or subspace; other models are left alone.

    Args:
        elbo: The objective of the trained model.
        examples: The training examples.
        config: Draws to make, and how to find a subspace's posterior.
        seed: Of the randomness.
        quiet: Show no progress.
    """
    model = elbo.model
    if model.method == "subspace":
        subspace_inference(elbo, examples, config.inference, samples=config.draws, seed=seed, quiet=quiet)
    if model.method in ("subspace", "swag"):
        model.refresh(examples, config.draws, seed)
