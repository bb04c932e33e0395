"""Schedules of the KL's weight: functions of the step."""

from collections.abc import Callable

from slimbayes._checks import check_count, check_number

__all__ = ["Schedule", "linear_annealing", "stepwise_annealing"]

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


class StepwiseAnnealing:
    """See ``stepwise_annealing``; a class, so that it can be pickled."""

    def __init__(self, slope: float, every: int) -> None:
        check_number(
            "slope", slope, 0.0, remedy="It is what one step adds to the weight: 5e-5 reaches 1 at step 20000."
        )
        check_count("every", every, 1, "Give optimiser steps; 1 for a weight that grows at each of them.")
        self.slope = float(slope)
        self.every = every

    def __call__(self, step: int) -> float:
        return min(1.0, self.slope * (step - step % self.every))

    def __repr__(self) -> str:
        return f"stepwise_annealing({self.slope}, every={self.every})"


def stepwise_annealing(slope: float, every: int = 100) -> Schedule:
    """Return the k-tied Normal paper's KL annealing, min(1, slope * every * (t // every)) at step t from 0.

    Args:
        slope: What one optimiser step adds; 5e-5 or 5e-6 in the paper (appendix D.4).
        every: Steps after which the weight is raised; until the first of them it is 0.

    Example:
        >>> beta = stepwise_annealing(0.125, every=2)
        >>> [beta(t) for t in (0, 1, 2, 3, 4, 7, 8, 9)]
        [0.0, 0.0, 0.25, 0.25, 0.5, 0.75, 1.0, 1.0]
    """
    return StepwiseAnnealing(slope, every)
