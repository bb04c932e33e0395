"""Shifts of tables and of plain series: inputs whose last axis holds features."""

from dataclasses import dataclass

import torch
from torch import Tensor

from slimbayes.data._columns import Category
from slimbayes.data.dataset import ExampleSource
from slimbayes.data.table import Table
from slimbayes.shifts._draws import Draws
from slimbayes.shifts.shift import Inputs, Shift, stretch

__all__ = ["Columns"]

_MOST_ROWS = 10_000


@dataclass(frozen=True)
class Columns:
    """One input, ``(n, columns)`` or ``(n, time, columns)``.

    Attributes:
        features: ``(columns,)``: the feature of each column; a category has several, a number perhaps a flag besides.
        missing: ``(columns,)``: what the column holds where its feature is missing.
        spread: ``(columns,)``: the standard deviation of real values; 0 for columns that hold something else.
        flags: ``(columns,)``: the column that is 1 where this one's value is missing; ``columns`` if there is none.
        series: Whether there is an axis of time.

    Example:
        >>> columns = Columns.standardised(3)
        >>> (x,) = columns.shifts["missing"]((torch.ones(1, 3),), severity=5)
        >>> x
        tensor([[1., 1., 0.]])
    """

    features: Tensor
    missing: Tensor
    spread: Tensor
    flags: Tensor
    series: bool = False

    @classmethod
    def standardised(cls, count: int) -> "Columns":
        """Return columns of mean 0 and standard deviation 1; a missing value is the mean."""
        return cls(torch.arange(count), torch.zeros(count), torch.ones(count), torch.full((count,), count))

    @classmethod
    def of_table(cls, table: Table) -> "Columns":
        """Return the columns of a table: numbers, perhaps with a flag, truth values and categories."""
        rows: list[tuple[int, float, float, int]] = []
        for feature, column in enumerate(table.columns):
            if isinstance(column, Category):
                rows += [(feature, float(one == column.width - 1), 0.0, table.width) for one in range(column.width)]
                continue
            flag = len(rows) + 1 if column.flagged else table.width
            fill = (column.fill - column.mean) / column.std
            rows.append((feature, fill, float(column.kind != "boolean"), flag))
            if column.flagged:
                rows.append((feature, 1.0, 0.0, table.width))
        features, missing, spread, flags = zip(*rows, strict=True)
        return cls(torch.tensor(features), torch.tensor(missing), torch.tensor(spread), torch.tensor(flags))

    @classmethod
    def of_examples(cls, train: ExampleSource) -> "Columns":
        """Return columns whose mean and standard deviation are those of the first 10,000 training examples."""
        (x,), _ = train.fetch(torch.arange(min(len(train), _MOST_ROWS)))
        rows = x.flatten(0, -2)
        spread = torch.where((rows == rows[0]).all(0), 0.0, rows.std(0, correction=0))
        count = rows.shape[1]
        return cls(torch.arange(count), rows.mean(0), spread, torch.full((count,), count), series=x.dim() == 3)

    @property
    def shifts(self) -> dict[str, Shift]:
        """Missing features, noise, drift, and gaps in time for series."""
        found = {"missing": self._without_features, "noise": self._noisy, "drift": self._drifted}
        if self.series:
            found["gap"] = self._with_gap
        return {name: Shift(name, apply) for name, apply in found.items()}

    def noise(self, inputs: Inputs, draws: Draws) -> Inputs | None:
        """Return real values drawn from a normal distribution with the mean and spread of each column."""
        if not self.spread.any():
            return None
        (x,) = inputs
        drawn = self.missing + self.spread * draws.normal(*x.shape[1:])
        return (torch.where(self._measured(x), drawn, x),)

    def _measured(self, x: Tensor) -> Tensor:
        """Return which entries are real values that are not missing."""
        flagged = torch.nn.functional.pad(x, (0, 1))[..., self.flags] == 1
        return (self.spread > 0) & ~flagged

    def _without_features(self, inputs: Inputs, share: float, draws: Draws) -> Inputs:
        (x,) = inputs
        gone = (draws.uniform(int(self.features[-1]) + 1) < share)[:, self.features]
        return (torch.where(gone.unsqueeze(1) if self.series else gone, self.missing, x),)

    def _noisy(self, inputs: Inputs, size: float, draws: Draws) -> Inputs:
        (x,) = inputs
        return (torch.where(self._measured(x), x + size * self.spread * draws.normal(*x.shape[1:]), x),)

    def _drifted(self, inputs: Inputs, size: float, draws: Draws) -> Inputs:
        (x,) = inputs
        return (torch.where(self._measured(x), x + size * self.spread * draws.common().normal(x.shape[-1]), x),)

    def _with_gap(self, inputs: Inputs, share: float, draws: Draws) -> Inputs:
        (x,) = inputs
        start, end = stretch(x.shape[1], share, draws)
        time = torch.arange(x.shape[1])
        lost = (time >= start.unsqueeze(1)) & (time < end.unsqueeze(1))
        return (torch.where(lost.unsqueeze(-1), self.missing, x),)
