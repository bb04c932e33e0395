"""Shifts of hourly series that carry the latest measurement forward and say when there was one."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from slimbayes.shifts._draws import Draws
from slimbayes.shifts.shift import Inputs, Shift, stretch


def bounds_of(scaling: dict[str, Sequence[float]]) -> tuple[Tensor, Tensor]:
    """Return the lowest and the highest standardised value of each variable, to which preparation clips.

    Args:
        scaling: The parts of a ``Scaling``.

    Example:
        >>> bounds_of({"low": [0.0], "high": [10.0], "mean": [4.0], "std": [2.0]})
        (tensor([-2.]), tensor([3.]))
    """
    low, high, mean, std = (torch.tensor(scaling[part]) for part in ("low", "high", "mean", "std"))
    return (low - mean) / std, (high - mean) / std


@dataclass(frozen=True)
class Hourly:
    """The result of ``PhysionetHourly``: values, indicators of a measurement in that very hour, context.

    What is lost is neither indicated nor carried forward, as if it had never been measured. The context stays.

    Attributes:
        low: ``(variables,)``: lowest value of each variable.
        high: ``(variables,)``: highest value; a variable that has only one is no real number, and gets no noise.
        context: Columns of the context.

    Shape:
        - The input: ``(n, hours, variables + variables + context)``.

    Example:
        >>> hours = torch.zeros(1, 10, 2)
        >>> hours[0, 6:] = torch.tensor([2.0, 0.0])  # measured in hour 6, then carried forward
        >>> hours[0, 6, 1] = 1.0
        >>> (x,) = Hourly(torch.tensor([-9.0]), torch.tensor([9.0]), 0).shifts["gap"]((hours,), severity=5)
        >>> x.abs().sum()  # hour 6 is in the gap
        tensor(0.)
    """

    low: Tensor
    high: Tensor
    context: int

    @property
    def features(self) -> Tensor:
        """A variable's values and indicators belong together; so does the whole context."""
        count = len(self.low)
        return torch.cat([torch.arange(count), torch.arange(count), torch.full((self.context,), count)])

    @property
    def shifts(self) -> dict[str, Shift]:
        """Missing variables, noisy measurements, drifting instruments, gaps in time."""
        found = {"missing": self._missing, "noise": self._noisy, "drift": self._drifted, "gap": self._with_gap}
        return {name: Shift(name, apply) for name, apply in found.items()}

    def noise(self, inputs: Inputs, draws: Draws) -> Inputs:
        """Return measurements drawn from a standard normal distribution, at the hours of the real ones."""
        values, observed, context = self._parts(inputs)
        return _joined(torch.where(self._real, draws.normal(*values.shape[1:]), values), observed, context)

    @property
    def _real(self) -> Tensor:
        return self.high > self.low

    def _parts(self, inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
        (x,) = inputs
        count = len(self.low)
        return x[..., :count], x[..., count : 2 * count] > 0, x[..., 2 * count :]

    def _missing(self, inputs: Inputs, share: float, draws: Draws) -> Inputs:
        values, observed, context = self._parts(inputs)
        gone = draws.uniform(len(self.low)) < share
        return _joined(values, observed & ~gone.unsqueeze(1), context)

    def _noisy(self, inputs: Inputs, size: float, draws: Draws) -> Inputs:
        values, observed, context = self._parts(inputs)
        return _joined(self._moved(values, size * draws.normal(*values.shape[1:])), observed, context)

    def _drifted(self, inputs: Inputs, size: float, draws: Draws) -> Inputs:
        values, observed, context = self._parts(inputs)
        return _joined(self._moved(values, size * draws.common().normal(len(self.low))), observed, context)

    def _moved(self, values: Tensor, by: Tensor) -> Tensor:
        return torch.where(self._real, (values + by).clamp(self.low, self.high), values)

    def _with_gap(self, inputs: Inputs, share: float, draws: Draws) -> Inputs:
        values, observed, context = self._parts(inputs)
        start, end = stretch(values.shape[1], share, draws)
        hour = torch.arange(values.shape[1])
        lost = (hour >= start.unsqueeze(1)) & (hour < end.unsqueeze(1))
        return _joined(values, observed & ~lost.unsqueeze(-1), context)


def _joined(values: Tensor, observed: Tensor, context: Tensor) -> Inputs:
    """Carry observed values forward again; before the first one they are 0, the mean."""
    hours = torch.arange(values.shape[1]).view(1, -1, 1)
    latest = torch.where(observed, hours, 0).cummax(1).values
    carried = torch.where(observed.cummax(1).values, values.gather(1, latest), 0.0)
    return (torch.cat([carried, observed.to(values.dtype), context], -1),)
