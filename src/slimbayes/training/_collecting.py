"""When the weights of a run go into the posterior of a method that collects them."""

from slimbayes.mcmc.cyclical import CyclicalRate
from slimbayes.model import BayesianModel
from slimbayes.training.config import Collect


class Collector:
    """Tells after which steps to call ``model.collect()``.

    Args:
        config: Start and interval.
        steps: Optimiser steps of the whole run.
        steps_per_epoch: Those of an epoch.
        cycles: The run's cyclical schedule, if it has one: its sampling stages are the times to collect.

    Example:
        >>> collector = Collector(Collect(start=0.5, every=0.5), steps=12, steps_per_epoch=4)
        >>> [step for step in range(1, 13) if collector.due(step)]
        [8, 10, 12]
    """

    def __init__(self, config: Collect, steps: int, steps_per_epoch: int, cycles: CyclicalRate | None = None) -> None:
        self.first = config.start * steps
        self.interval = max(1, round(config.every * steps_per_epoch))
        self.steps, self.cycles = steps, cycles

    @property
    def begins(self) -> int:
        """Steps of the run before the time of collecting."""
        if self.cycles is None:
            return int(self.first)
        return next((step for step in range(self.steps) if self.cycles.sampling(step)), self.steps)

    def due(self, step: int) -> bool:
        """Tell whether to collect after so many steps of the run."""
        if self.cycles is None:
            return step > self.first and (self.steps - step) % self.interval == 0
        end = min((self.cycles.cycle(step - 1) + 1) * self.cycles.length, self.steps)
        return self.cycles.sampling(step - 1) and (end - step) % self.interval == 0


def check_enough(collector: Collector, model: BayesianModel, done: int = 0) -> None:
    """Raise unless a run of which so many steps are done will have collected as often as the model needs."""
    times = model.collected + sum(collector.due(step) for step in range(done + 1, collector.steps + 1))
    if times < model.needed:
        raise ValueError(
            f"Expected `collect` and the length of the run to give {model.method} at least {model.needed} times to "
            f"collect, but got {times}. Train longer, start earlier or lower `collect.every`."
        )
