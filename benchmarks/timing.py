"""One interleaved run of several cases that is given some seconds, however fast the machine is."""

import math
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from benchmarks.interleaved import Clock, Seconds, Step, calibrate, measure

__all__ = ["Timed", "time_cases"]

MOST_ROUNDS = 100
#: A step that takes as long fills the caches in a small part of its time, and needs no untimed call before it.
LONG_STEP = 0.2


class Timed(NamedTuple):
    """An interleaved run.

    Attributes:
        steps: What was timed, by name.
        times: The seconds of a call in each round, by name.
        rounds: Timings of each case.
        repetitions: Calls in one timing.
        warmup: Calls before each timing that were not timed.
    """

    steps: dict[str, Step]
    times: dict[str, Seconds]
    rounds: int
    repetitions: int
    warmup: int


def time_cases(
    builders: Mapping[str, Callable[[], Step]],
    baseline: str,
    seconds: float,
    rounds: int | None = None,
    seed: int = 0,
    progress: Callable[[float], None] = lambda share: None,
    clock: Clock = time.perf_counter,
) -> Timed:
    """Build cases, each under the same seed, and time them in as many rounds as fit into some seconds.

    Args:
        builders: By name, what makes a step.
        baseline: The case whose step decides how many calls a timing has.
        seconds: After which no round is begun any more, unless there were too few of them to tell anything.
        rounds: A number of rounds instead.
        seed: Of torch's global generator before each case is built, and of the order.
        progress: Called with the share that is done.
        clock: Returns seconds.

    Example:
        >>> timed = time_cases({"plain": lambda: lambda: None}, "plain", seconds=1.0, rounds=2)
        >>> timed.times["plain"].shape, timed.rounds
        ((2,), 2)
    """
    steps = {}
    for name, build in builders.items():
        torch.manual_seed(seed)
        steps[name] = build()
    for step in steps.values():
        step()  # the first one makes the optimiser's state
    repetitions = calibrate(steps[baseline], clock=clock)
    warmup = 0 if _seconds(steps[baseline], clock) >= LONG_STEP else 1
    limit = seconds if rounds is None else math.inf
    start = clock()

    def report(done: int, total: int) -> None:
        progress(min(max(done / total, (clock() - start) / limit), 1.0))

    times = measure(steps, rounds or MOST_ROUNDS, repetitions, warmup, report, seed, clock, limit)
    return Timed(steps, times, len(times[baseline]), repetitions, warmup)


def _seconds(step: Step, clock: Clock) -> float:
    start = clock()
    step()
    return clock() - start
