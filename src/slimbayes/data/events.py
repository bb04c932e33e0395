"""Irregular events of patients: kept end to end, padded batch by batch, standardised by training statistics."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slimbayes.data._standardise import mean_and_std
from slimbayes.data.dataset import Batch
from slimbayes.data.preparation import Preparation

__all__ = ["EventExamples", "EventPreparation", "Records", "Scaling"]

#: Readings beyond these quantiles of training are typing errors more often than not (a pH of 735).
_QUANTILES = (0.001, 0.999)


_FLAT = ("times", "variables", "values", "context")


@dataclass(frozen=True)
class Records:
    """The events of many records, end to end, and a few numbers about each record.

    Attributes:
        starts: ``(n + 1,)``: where each record's events begin; the last entry is where they all end.
        times: Hours, from the record's beginning, of each event.
        variables: What was observed, from 1; 0 is padding.
        values: What it was; 0 for events without a number.
        context: ``(n, columns)``, NaN where missing.

    Example:
        >>> records = Records.of([2, 0], [0.5, 3.0], [1, 2], [7.4, 90.0], np.zeros((2, 1)))
        >>> records.padded(torch.tensor([1, 0]))[1]
        tensor([[0, 0],
                [1, 2]])
    """

    starts: Tensor
    times: Tensor
    variables: Tensor
    values: Tensor
    context: Tensor

    @classmethod
    def of(cls, lengths: Any, times: Any, variables: Any, values: Any, context: Any) -> "Records":
        """Return records of the given lengths; events are given in the records' order."""
        starts = np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))])
        kinds = (np.int64, np.float32, np.int32, np.float32, np.float32)
        parts = (starts, times, variables, values, context)
        return cls(*(torch.from_numpy(np.asarray(part, kind)) for part, kind in zip(parts, kinds, strict=True)))

    @classmethod
    def joined(cls, parts: "Sequence[Records]") -> "Records":
        """Return several records as one."""
        lengths = torch.cat([part.lengths for part in parts])
        flat = [torch.cat([getattr(part, name) for part in parts]) for name in _FLAT]
        return cls.of(lengths, *flat)

    def __len__(self) -> int:
        return len(self.context)

    @property
    def lengths(self) -> Tensor:
        """Events of each record."""
        return self.starts.diff()

    def owners(self) -> Tensor:
        """Return the record of each event."""
        return torch.repeat_interleave(torch.arange(len(self)), self.lengths)

    def scalings(self, train: Tensor, numbers: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        """Return how training records ask to scale the first ``numbers`` variables, and the context."""
        of_train = torch.zeros(len(self), dtype=torch.bool)
        of_train[train] = True
        chosen = of_train[self.owners()] & (self.variables <= numbers)
        values = Scaling.of(self.variables[chosen].numpy() - 1, self.values[chosen].numpy(), numbers)
        return values.parts, Scaling.of_columns(self.context[train]).parts

    def padded(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return times, variables, values and context of these records, padded with 0 to the longest of them."""
        starts, lengths = self.starts[rows], self.lengths[rows]
        columns = torch.arange(max(int(lengths.max()) if len(rows) else 0, 1))
        there = columns < lengths.unsqueeze(1)
        flat = (starts.unsqueeze(1) + columns)[there]
        padded = []
        for part, dtype in ((self.times, torch.float32), (self.variables, torch.int64), (self.values, torch.float32)):
            padded.append(torch.zeros(there.shape, dtype=dtype).masked_scatter_(there, part[flat].to(dtype)))
        return padded[0], padded[1], padded[2], self.context[rows]


@dataclass(frozen=True)
class EventExamples:
    """Records and their targets; a batch is padded to its own longest record."""

    records: Records
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def fetch(self, rows: Tensor) -> Batch:
        """Return times, variables, values and context of these rows, and their targets."""
        return self.records.padded(rows), self.targets[rows]


class Scaling:
    """Clips each variable to the range of training and brings it to mean 0 and standard deviation 1.

    Args:
        low: Smallest value of each variable.
        high: Largest one.
        mean: Mean of each.
        std: Standard deviation of each, above 0.

    Example:
        >>> Scaling([0.0], [10.0], [4.0], [2.0])(torch.tensor([[8.0], [99.0], [float("nan")]])).flatten()
        tensor([2., 3., 0.])
    """

    def __init__(
        self, low: Sequence[float], high: Sequence[float], mean: Sequence[float], std: Sequence[float]
    ) -> None:
        self.parts = {"low": list(low), "high": list(high), "mean": list(mean), "std": list(std)}
        self._table = torch.tensor(list(self.parts.values()), dtype=torch.float32).view(4, -1)

    @classmethod
    def of(cls, variables: NDArray[Any], values: NDArray[Any], count: int) -> "Scaling":
        """Return the one that training observations ask for.

        Args:
            variables: From 0 to ``count - 1``.
            values: As many; NaN for missing. A variable that was never seen becomes 0 always.
            count: Number of variables.
        """
        seen = ~np.isnan(values)
        variables, values = variables[seen], values[seen]
        order = np.argsort(variables, kind="stable")
        bounds = np.searchsorted(variables[order], np.arange(1, count))
        parts = [_range_and_moments(part) for part in np.split(values[order].astype(np.float64), bounds)]
        return cls(*np.array(parts).reshape(-1, 4).T.tolist())

    @classmethod
    def of_columns(cls, rows: Tensor) -> "Scaling":
        """Return the one for the columns of ``(rows, columns)``."""
        variables = np.tile(np.arange(rows.shape[1]), len(rows))
        return cls.of(variables, rows.numpy().reshape(-1), rows.shape[1])

    def __call__(self, values: Tensor, variables: Tensor | None = None) -> Tensor:
        """Scale values of the given variables; None for one variable each column. Missing values become 0."""
        table = self._table.to(values.device)
        low, high, mean, std = table if variables is None else table[:, variables]
        return ((values.clamp(low, high) - mean) / std).nan_to_num(0.0)


def _range_and_moments(values: NDArray[np.float64]) -> tuple[float, float, float, float]:
    if not len(values):
        return 0.0, 0.0, 0.0, 1.0
    low, high = np.quantile(values, _QUANTILES)
    mean, std = mean_and_std(values.clip(low, high))
    return float(low), float(high), float(mean), float(std)


class EventPreparation(Preparation):
    """Standardises events and context.

    Args:
        variables: Names of the variables; the first has number 1.
        values: How their values are scaled: the arguments of ``Scaling``, an entry for each of the first variables.
            Events of the others have no value.
        context: How the columns of the context are scaled.

    Shape:
        - Raw and result: times, variables and values of shape ``(batch, events)``, context ``(batch, columns)``.
    """

    def __init__(
        self, variables: Sequence[str], values: dict[str, list[float]], context: dict[str, list[float]]
    ) -> None:
        self.variables = list(variables)
        self.values, self.context = Scaling(**values), Scaling(**context)
        self._numbers = len(self.values.parts["mean"])
        # 0 is padding, and whatever comes after the numbers is a token: both have the value 0.
        silent = dict.fromkeys(("low", "high", "mean"), 0.0) | {"std": 1.0}
        self._events = Scaling(**{key: [silent[key], *part, silent[key]] for key, part in self.values.parts.items()})

    def __call__(self, *raw: Tensor) -> tuple[Tensor, ...]:
        """Return times, variables, standardised values and standardised context."""
        times, variables, values, context = raw
        scaled = self._events(values, variables.clamp(max=self._numbers + 1))
        return times, variables, scaled, self.context(context)

    def spec(self) -> dict[str, Any]:  # noqa: D102
        return {
            "kind": self.kind,
            "variables": self.variables,
            "values": self.values.parts,
            "context": self.context.parts,
        }
