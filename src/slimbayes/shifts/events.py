"""Shifts of irregular events: times, variables and values, padded on the right, and a context."""

from dataclasses import dataclass

import torch
from torch import Tensor

from slimbayes.shifts._draws import Draws
from slimbayes.shifts.shift import Inputs, Shift

__all__ = ["Events"]


@dataclass(frozen=True)
class Events:
    """The result of an ``EventPreparation``. Lost events leave no trace, and the context stays.

    Attributes:
        low: ``(variables + 1,)``: lowest value of each variable's standardised values; variable 0 is padding.
        high: The highest one; the same for variables without a value.

    Shape:
        - Inputs: times in hours, variables and values ``(n, events)``, context ``(n, columns)``.

    Example:
        >>> events = Events(torch.tensor([0.0, -3.0]), torch.tensor([0.0, 3.0]))
        >>> inputs = (torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([[1, 1, 0]]), torch.ones(1, 3), torch.zeros(1, 1))
        >>> events.shifts["gap"](inputs, severity=5)[0]
        tensor([[2.]])
    """

    low: Tensor
    high: Tensor

    @property
    def features(self) -> None:
        """Events of a record have no columns."""
        return

    @property
    def shifts(self) -> dict[str, Shift]:
        """Missing variables, lost events, noisy values, drifting instruments, gaps in time."""
        found = {
            "missing": self._missing,
            "dropped": _dropped,
            "noise": self._noisy,
            "drift": self._drifted,
            "gap": _with_gap,
        }
        return {name: Shift(name, apply) for name, apply in found.items()}

    def noise(self, inputs: Inputs, draws: Draws) -> Inputs:
        """Return as many events at the same times, of any variables, with values from a standard normal."""
        times, variables, values, context = inputs
        others = draws._replace(purpose=f"{draws.purpose}, variables")
        drawn = torch.where(variables > 0, 1 + others.below(len(self.low) - 1, variables.shape[1]), 0)
        real = self.high[drawn] > self.low[drawn]
        return times, drawn, torch.where(real, draws.normal(values.shape[1]), 0.0), context

    def _missing(self, inputs: Inputs, share: float, draws: Draws) -> Inputs:
        gone = draws.uniform(len(self.low)) < share
        return _kept(inputs, ~gone.gather(1, inputs[1]))

    def _noisy(self, inputs: Inputs, size: float, draws: Draws) -> Inputs:
        return self._moved(inputs, size * draws.normal(inputs[2].shape[1]))

    def _drifted(self, inputs: Inputs, size: float, draws: Draws) -> Inputs:
        return self._moved(inputs, size * draws.common().normal(len(self.low))[0, inputs[1]])

    def _moved(self, inputs: Inputs, by: Tensor) -> Inputs:
        times, variables, values, context = inputs
        low, high = self.low[variables], self.high[variables]
        return times, variables, torch.where(high > low, (values + by).clamp(low, high), values), context


def _dropped(inputs: Inputs, share: float, draws: Draws) -> Inputs:
    return _kept(inputs, draws.uniform(inputs[0].shape[1]) >= share)


def _with_gap(inputs: Inputs, share: float, draws: Draws) -> Inputs:
    """Lose a stretch of the time from the record's beginning to its last event."""
    times, variables = inputs[:2]
    last = torch.where(variables > 0, times, 0.0).amax(1, keepdim=True)
    start = (draws.uniform(1) * (1 - share)).to(times.dtype) * last
    return _kept(inputs, (times < start) | (times >= start + share * last))


def _kept(inputs: Inputs, keep: Tensor) -> Inputs:
    """Return some events of each record in their order, padded with 0 to the longest."""
    *events, context = inputs
    keep = keep & (inputs[1] > 0)
    longest = max([1, *keep.sum(1).tolist()])
    order = (~keep).long().argsort(dim=1, stable=True)[:, :longest]
    there = keep.gather(1, order)
    return *(torch.where(there, x.gather(1, order), torch.zeros_like(x[:, :1])) for x in events), context
