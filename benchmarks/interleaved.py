"""Time several things against each other on a machine whose speed drifts."""

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slimbayes._checks import check_choice, check_count

__all__ = ["Ratio", "calibrate", "measure", "ratios", "summarise"]

Step = Callable[[], None]
Clock = Callable[[], float]
Seconds = NDArray[np.float64]

LEAST_SECONDS = 0.02  # shorter timings would feel the operating system's ticks


class Ratio(NamedTuple):
    """How much longer a case takes than the baseline.

    Attributes:
        median: Of the per-round ratios.
        quartiles: The lower and the upper one: the spread of a single round.
        interval: Bootstrap 95% interval of the median: how well the median is known.
    """

    median: float
    quartiles: tuple[float, float]
    interval: tuple[float, float]


def calibrate(case: Step, least: float = LEAST_SECONDS, clock: Clock = time.perf_counter) -> int:
    """Return how many calls of ``case``, a power of two, take at least ``least`` seconds.

    Args:
        case: The baseline; all cases are then called equally often.
        least: Seconds.
        clock: Returns seconds.

    Example:
        >>> ticks = iter(range(100))
        >>> calibrate(lambda: None, least=1.0, clock=lambda: next(ticks))
        1
    """
    for _ in range(3):  # the first calls allocate
        case()
    count = 1
    # The shortest of three, or one hiccup would pass for a long step.
    while min(_time(case, count, clock) for _ in range(3)) < least:
        count *= 2
    return count


def measure(
    cases: Mapping[str, Step],
    rounds: int,
    repetitions: int = 1,
    warmup: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
    seed: int = 0,
    clock: Clock = time.perf_counter,
    seconds: float = math.inf,
    least: int = 5,
) -> dict[str, Seconds]:
    """Time every case once in every round, in an order that is shuffled anew for each round.

    In the long run neither position nor predecessor favours anyone. Python's garbage collector runs between
    rounds only.

    Args:
        cases: What is called, by name.
        rounds: Timings of each case, at most.
        repetitions: Calls in one timing, the same for all cases; see ``calibrate``.
        warmup: Calls before each timing that are not timed: the first one finds the caches filled by another case.
        progress: Called with the rounds done and the rounds in all.
        seed: Of the order.
        clock: Returns seconds.
        seconds: After which no round is begun any more.
        least: Rounds to make all the same.

    Returns:
        By name, the seconds of one call in each round, ``(rounds,)``.

    Example:
        >>> times = measure({"sum": lambda: None, "sort": lambda: None}, rounds=5)
        >>> times["sort"].shape
        (5,)
    """
    check_count("rounds", rounds)
    check_count("repetitions", repetitions)
    check_count("warmup", warmup, 0)
    names = list(cases)
    order = np.random.default_rng(seed)
    times = {name: np.empty(rounds) for name in names}
    done, start = 0, clock()
    progress(0, rounds)
    with _collector_off():
        for round_ in range(rounds):
            gc.collect(1)  # what the last round left is young; all of torch would take 0.1 s
            for index in order.permutation(len(names)):
                name = names[index]
                for _ in range(warmup):
                    cases[name]()
                times[name][round_] = _time(cases[name], repetitions, clock) / repetitions
            done = round_ + 1
            progress(done, rounds)
            if done >= least and clock() - start >= seconds:
                break
    return {name: by_round[:done] for name, by_round in times.items()}


def ratios(times: Mapping[str, Seconds], baseline: str, resamples: int = 10_000, seed: int = 0) -> dict[str, Ratio]:
    """Return every case's ratio to the baseline, from the ratios within each round.

    Within a round all cases meet nearly the same machine, so that slow drifts of its speed (heat, a neighbour) cancel;
    they would stay in a ratio of medians. The median over rounds then ignores the few that something interrupted.

    Args:
        times: What ``measure`` returned.
        baseline: The name of the case to divide by.
        resamples: Of the rounds, for the bootstrap interval.
        seed: Of the bootstrap.

    Example:
        >>> ratios({"plain": np.array([1.0, 2.0]), "twice": np.array([2.0, 4.0])}, "plain")["twice"]
        Ratio(median=2.0, quartiles=(2.0, 2.0), interval=(2.0, 2.0))
    """
    check_choice("baseline", baseline, times)
    rounds = len(times[baseline])
    picks = np.random.default_rng(seed).integers(rounds, size=(resamples, rounds))
    return {name: _ratio(seconds / times[baseline], picks) for name, seconds in times.items()}


def summarise(times: Mapping[str, Seconds], baseline: str, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Return what is stored of every case as JSON values: its median seconds and its ratio to the baseline.

    Example:
        >>> summarise({"plain": np.array([1.0, 2.0])}, "plain")["plain"]
        {'seconds': 1.5, 'ratio': 1.0, 'quartiles': [1.0, 1.0], 'interval': [1.0, 1.0]}
    """
    return {
        name: {
            "seconds": float(np.median(times[name])),
            "ratio": ratio.median,
            "quartiles": list(ratio.quartiles),
            "interval": list(ratio.interval),
        }
        for name, ratio in ratios(times, baseline, seed=seed).items()
    }


def _ratio(by_round: Seconds, picks: NDArray[np.int64]) -> Ratio:
    lower, median, upper = np.percentile(by_round, [25, 50, 75]).tolist()
    low, high = np.percentile(np.median(by_round[picks], axis=1), [2.5, 97.5]).tolist()
    return Ratio(median, (lower, upper), (low, high))


def _time(case: Step, repetitions: int, clock: Clock) -> float:
    start = clock()
    for _ in range(repetitions):
        case()
    return clock() - start


@contextmanager
def _collector_off() -> Iterator[None]:
    restore = gc.enable if gc.isenabled() else gc.disable
    gc.disable()
    try:
        yield
    finally:
        restore()
