"""What every loader returns: examples in three parts, the task, and how raw inputs become the network's."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from slimbayes._checks import check_count
from slimbayes.data.preparation import Arrays, Preparation

__all__ = ["Augmentation", "Batch", "DataSet", "ExampleSource", "Examples", "Rows", "Task"]

#: Inputs, as the network takes them by position, and targets.
Batch = tuple[tuple[Tensor, ...], Tensor]
#: Changes a batch of raw inputs at random.
Augmentation = Callable[[tuple[Tensor, ...], Generator], tuple[Tensor, ...]]


class ExampleSource(Protocol):
    """Examples that can be fetched by their numbers, from memory or from files."""

    def __len__(self) -> int: ...

    def fetch(self, rows: Tensor) -> Batch:
        """Return the raw inputs and the targets of these rows; ``rows`` is a tensor of integers."""
        ...


@dataclass(frozen=True)
class Examples:
    """Examples in memory.

    Args:
        inputs: Raw inputs, tensors whose first axis counts the examples; images may stay uint8.
        targets: ``(n,)`` or ``(n, *)``: class numbers (int64), or real values (float32).

    Example:
        >>> examples = Examples((torch.arange(6).view(3, 2),), torch.tensor([0, 1, 0]))
        >>> examples.fetch(torch.tensor([2, 0]))
        ((tensor([[4, 5],
                [0, 1]]),), tensor([0, 0]))
    """

    inputs: tuple[Tensor, ...]
    targets: Tensor

    def __post_init__(self) -> None:
        for x in self.inputs:
            if len(x) != len(self.targets):
                raise ValueError(f"Expected as many inputs as targets, but got {len(x)} and {len(self.targets)}.")

    def __len__(self) -> int:
        return len(self.targets)

    def fetch(self, rows: Tensor) -> Batch:
        """Return the inputs and targets of these rows."""
        return tuple(x[rows] for x in self.inputs), self.targets[rows]


@dataclass(frozen=True)
class Rows:
    """Some rows of other examples, in a given order."""

    source: ExampleSource
    rows: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def fetch(self, rows: Tensor) -> Batch:
        """Return the inputs and targets of these rows."""
        return self.source.fetch(self.rows[rows])


#: What data can ask for, by the likelihood: classes, yes or no, real values, counts.
TASKS = ("categorical", "bernoulli", "gaussian", "poisson")


@dataclass(frozen=True)
class Task:
    """What is to be predicted from what.

    Attributes:
        likelihood: One of ``TASKS``.
        outputs: Numbers that the network must return for an example: the classes, or 1.
        input_shape: Shape of one example of the network's first input, after preparation.
        classes: Names of the classes, if they have names.
        vocabulary: Number of different tokens, if inputs are tokens; of variables, padding included, for events.
        target_mean: Targets are given as (y - target_mean) / target_std; both are 0 and 1 unless real values.
        target_std: See there.
        context: Columns of what is known of an example besides its events.
    """

    likelihood: str
    outputs: int
    input_shape: tuple[int, ...]
    classes: tuple[str, ...] | None = None
    vocabulary: int | None = None
    target_mean: float = 0.0
    target_std: float = 1.0
    context: int = 0


@dataclass(frozen=True)
class DataSet:
    """A data set, split.

    Attributes:
        name: What the command line calls it.
        train: To learn from.
        validation: To choose on; None if there is none.
        test: To report on; None if there is none.
        task: What is predicted.
        preparation: Turns raw inputs into the network's, batch by batch.
        augmentation: For training batches only, before preparation; None for none.
    """

    name: str
    train: ExampleSource
    validation: ExampleSource | None
    test: ExampleSource | None
    task: Task
    preparation: Preparation = field(default_factory=Arrays)
    augmentation: Augmentation | None = None

    def limited(self, train: int | None = None, evaluation: int | None = None) -> "DataSet":
        """Return the same with only the first examples of each part, for short runs.

        Args:
            train: Training examples to keep; None for all.
            evaluation: Validation and test examples to keep; None for all.

        Example:
            >>> examples = Examples((torch.zeros(5, 2),), torch.zeros(5))
            >>> data = DataSet("toy", examples, examples, None, Task("gaussian", 1, (2,)))
            >>> len(data.limited(train=3).train), len(data.limited(train=3).validation)
            (3, 5)
        """
        return replace(
            self,
            train=_first(self.train, "train", train),
            validation=_first(self.validation, "evaluation", evaluation),
            test=_first(self.test, "evaluation", evaluation),
        )


def _first(examples: Any, argument: str, count: int | None) -> Any:
    if examples is None or count is None:
        return examples
    check_count(argument, count)
    return Rows(examples, torch.arange(min(count, len(examples))))
