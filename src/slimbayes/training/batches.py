"""Batches of an epoch: the same for any number of worker processes that fetch them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.utils.data import DataLoader, Dataset

from slimbayes._seeds import Purpose, mix
from slimbayes.data.dataset import Augmentation, Batch, ExampleSource
from slimbayes.data.preparation import Preparation

__all__ = ["Batches", "Part", "ReplayedEpoch", "blocks"]


class Part(NamedTuple):
    """What one process handles at once: a share of an optimiser step's examples.

    Attributes:
        inputs: The network's, by position.
        targets: ``(rows, *)``.
        weight: This part's share of the step's examples, times the number of parts over all processes; the mean over
            parts of weight * (mean over rows) is the mean over the step's examples.
    """

    inputs: tuple[Tensor, ...]
    targets: Tensor
    weight: float


class _Key(NamedTuple):
    rows: Tensor
    seed: int
    weight: float


class Batches:
    """Shuffles training examples anew in each epoch and deals them to steps, processes and parts.

    The last step of an epoch may have fewer examples; it is left out only if some part would have none.

    Args:
        source: The examples.
        batch_size: Examples of an optimiser step, over all processes.
        preparation: Turns raw inputs into the network's.
        augmentation: Changes raw inputs at random first, or None.
        seed: Of order and augmentation.
        parts: Parts of a step in each process.
        rank: This process.
        processes: Their number.
        workers: Processes that fetch ahead; 0 to fetch here.
        pin: Put batches into pinned memory, for a GPU.

    Example:
        >>> from slimbayes.data.dataset import Examples
        >>> from slimbayes.data.preparation import Arrays
        >>> batches = Batches(Examples((torch.arange(10.0),), torch.arange(10)), 4, Arrays())
        >>> batches.steps, [len(part.targets) for part in batches.epoch(0)]
        (3, [4, 4, 2])
    """

    def __init__(
        self,
        source: ExampleSource,
        batch_size: int,
        preparation: Preparation,
        augmentation: Augmentation | None = None,
        seed: int = 0,
        parts: int = 1,
        rank: int = 0,
        processes: int = 1,
        workers: int = 0,
        pin: bool = False,
    ) -> None:
        if batch_size < parts * processes:
            raise ValueError(
                f"Expected `batch_size` to be at least accumulate * processes = {parts * processes}, "
                f"but got {batch_size}."
            )
        self.size, self.batch_size = len(source), batch_size
        self.seed, self.parts, self.rank, self.processes = seed, parts, rank, processes
        whole, rest = divmod(self.size, batch_size)
        self.steps = whole + (rest >= parts * processes)
        if self.steps == 0:
            raise ValueError(f"Expected at least {parts * processes} training examples, but got {self.size}.")
        self._plan: list[_Key] = []
        self._loader = DataLoader(
            _Fetcher(source, preparation, augmentation),
            batch_size=None,
            sampler=_Plan(self),
            collate_fn=_as_it_is,  # type: ignore[arg-type]
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=pin,
            # A generator of its own, or each epoch would take a number from torch's global one.
            generator=Generator(),
        )

    def epoch(self, epoch: int) -> Iterator[Part]:
        """Yield this process's parts of an epoch's steps, ``parts`` for each step."""
        order = torch.randperm(self.size, generator=Generator().manual_seed(mix(self.seed, Purpose.ORDER, epoch)))
        self._plan = []
        for step, rows in enumerate(order[: self.steps * self.batch_size].split(self.batch_size)):
            for part, own in enumerate(rows[self.rank :: self.processes].tensor_split(self.parts)):
                seed = mix(self.seed, Purpose.AUGMENTATION, epoch, step, self.rank, part)
                weight = len(own) * self.parts * self.processes / len(rows)
                self._plan.append(_Key(own, seed, weight))
        yield from self._loader

    def close(self) -> None:
        """End the processes that fetch, which would otherwise wait for the next epoch."""
        if self._loader._iterator is not None:
            self._loader._iterator._shutdown_workers()  # type: ignore[attr-defined]
            self._loader._iterator = None


@dataclass(frozen=True)
class ReplayedEpoch:
    """Inputs and targets of one epoch, the same each time that it is iterated over.

    Attributes:
        batches: The training examples, all of them.
        epoch: Decides order and augmentation.
    """

    batches: Batches
    epoch: int

    def __iter__(self) -> Iterator[Batch]:
        return ((part.inputs, part.targets) for part in self.batches.epoch(self.epoch))


def _as_it_is(part: Part) -> Part:
    return part


class _Plan:
    """Hands the loader the keys of the epoch under way."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[_Key]:
        return iter(self.batches._plan)

    def __len__(self) -> int:
        return len(self.batches._plan)


class _Fetcher(Dataset[Part]):
    def __init__(self, source: ExampleSource, preparation: Preparation, augmentation: Augmentation | None) -> None:
        self.source, self.preparation, self.augmentation = source, preparation, augmentation

    def __getitem__(self, key: _Key) -> Part:
        inputs, targets = self.source.fetch(key.rows)
        if self.augmentation is not None:
            inputs = self.augmentation(inputs, Generator().manual_seed(key.seed))
        return Part(self.preparation(*inputs), targets, key.weight)


def blocks(
    source: ExampleSource, preparation: Preparation, size: int, rank: int = 0, processes: int = 1
) -> Iterator[Batch]:
    """Yield prepared examples in order, ``size`` at a time, of which each process takes its share."""
    for rows in torch.arange(rank, len(source), processes).split(size):
        inputs, targets = source.fetch(rows)
        yield preparation(*inputs), targets
