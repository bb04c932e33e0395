"""What the torchmetrics classes have in common: sums over examples, sums over bins, or the examples themselves.

States are double precision and add up or join over processes, so that shards in any order give what one pass gives.
An empty shard changes nothing.
"""

import inspect
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

try:
    from torchmetrics import Metric
    from torchmetrics.utilities import dim_zero_cat
except ImportError as error:
    raise ImportError(f'The metric classes of sb.metrics need {error.name}: pip install "slimbayes[report]"') from error


class Stream(Metric):
    """Counts examples, skips empty shards and refuses to compute without any example.

    Args:
        label: Tells metrics of one class and unlike options apart.
        options: Of ``torchmetrics.Metric``.
    """

    full_state_update = False
    is_differentiable = False
    #: The function of the same name. Those of its arguments that have no default are the arguments of ``update``.
    function: ClassVar[Callable[..., Any]]
    #: Axis of the examples in the last argument.
    batch_dim: ClassVar[int] = 0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "function" in cls.__dict__:
            cls.update = _update_with_arguments_of(cls.function)  # type: ignore[method-assign]

    def __init__(self, label: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.set_dtype(torch.float64)  # of what torchmetrics sends for a process that has seen nothing
        # A MetricCollection takes metrics for one if their states have the same names and, after the first batch, the
        # same values, as accuracy and top-5 accuracy may; so the name of one state tells them apart.
        self.counter = f"examples_of_{type(self).__name__}{label}"
        self.add_state(self.counter, torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    @property
    def examples(self) -> Tensor:
        """How many examples were taken in."""
        return getattr(self, self.counter)

    def take_in(self, *arguments: Any) -> None:
        """Take in a shard, unless it is empty."""
        arguments = tuple(None if argument is None else torch.as_tensor(argument).detach() for argument in arguments)
        if any(argument is not None and argument.numel() for argument in arguments):
            self.take(*arguments)
            setattr(self, self.counter, self.examples + self.count(*arguments))

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """Take in a shard and return its own score; an error leaves what was taken in before as it was."""
        before = {name: list(value) if type(value) is list else value for name, value in self.__dict__.items()}
        try:
            return super().forward(*arguments, **named)
        except Exception:
            self.__dict__.update(before)
            raise

    def compute(self) -> Any:
        """Return what the function of the same name gives for all examples so far, of all processes."""
        if not self.examples:
            raise ValueError(f"{type(self).__name__} has seen no examples. Call update before compute.")
        return self.result()

    def count(self, *arguments: Any) -> int:
        """Return how many examples a shard has."""
        return arguments[-1].shape[self.batch_dim]

    @abstractmethod
    def take(self, *arguments: Any) -> None:
        """Add examples to the states."""

    @abstractmethod
    def result(self) -> Any:
        """Return the score."""


def _update_with_arguments_of(function: Callable[..., Any]) -> Callable[..., None]:
    """Return ``update`` with a signature, by which a MetricCollection deals out keywords."""
    needed = [one for one in inspect.signature(function).parameters.values() if one.default is one.empty]
    signature = inspect.Signature(needed)

    def update(self: Stream, *arguments: Any, **named: Any) -> None:
        """Take in a shard: the arguments of the function of the same name."""
        self.take_in(*signature.bind(*arguments, **named).args)

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    update.__signature__ = inspect.Signature([own, *needed])  # type: ignore[attr-defined]
    return update


class Sums(Stream):
    """A score that follows from sums over examples."""

    sums: Tensor

    def __init__(self, *shape: int, **options: Any) -> None:
        super().__init__(**options)
        self.add_state("sums", torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")

    def take(self, *arguments: Any) -> None:
        self.sums = self.sums + self.sums_of(*arguments).to(self.sums.device)

    @abstractmethod
    def sums_of(self, *arguments: Any) -> Tensor:
        """Return what a shard adds."""


class Mean(Sums):
    """The mean of a function with an argument ``reduction``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def sums_of(self, *arguments: Any) -> Tensor:
        return type(self).function(*arguments, reduction="none").sum()

    def result(self) -> Tensor:
        return self.sums / self.examples


class Examples(Stream):
    """A score that needs all examples at once: two numbers of each are kept."""

    rows: list[Tensor]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_state("rows", [], dist_reduce_fx="cat")

    def take(self, *arguments: Any) -> None:
        pairs = torch.stack([column.to(self.examples) for column in self.columns(*arguments)], 1)
        self.rows.append(pairs.flatten())  # flat, as is the nothing that torchmetrics sends for an idle process

    def result(self) -> Any:
        return self.score(*dim_zero_cat(self.rows).view(-1, 2).T)

    def columns(self, *arguments: Any) -> tuple[Tensor, ...]:
        """Return the two numbers of each example to keep, ``(batch,)`` each."""
        return arguments

    @abstractmethod
    def score(self, first: Tensor, second: Tensor) -> Any:
        """Return the score of what was kept."""
