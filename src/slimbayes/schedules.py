"""Schedules of the KL's weight: functions of the step."""

from collections.abc import Callable

from slimbayes._checks import check_count

__all__ = ["Schedule", "linear_annealing"]

#: Step, from 0, to weight.
Schedule = Callable[[int], float]


class LinearAnnealing:
    """See ``linear_annealing``; a class, so that it can be pickled."""

    def __init__(self, steps: int) -> None:
        check_count("steps", steps, 1, "Give optimiser steps, not epochs: epochs * len(loader).")
        self.steps = steps

    def __call__(self, step: int) -> float:
        return min(1.0, (step + 1) / self.steps)

    def __repr__(self) -> str:
        return f"linear_annealing({self.steps})"


def linear_annealing(steps: int) -> Schedule:
    """Return the papers' KL annealing, min(1, (t + 1) / steps) at optimiser step t from 0.

    The papers anneal over two thirds of training and more: at the start the KL may be tens of nats for each
    example, and would drown the data.

    Example:
        >>> beta = linear_annealing(4)
        >>> [beta(t) for t in range(5)]
        [0.25, 0.5, 0.75, 1.0, 1.0]
    """
    return LinearAnnealing(steps)
