"""What a method costs: the time of a training step, as a ratio to the plain network's."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from slimbayes._checks import check_choice, check_count
from slimbayes.bench.interleaved import calibrate, measure, ratios
from slimbayes.bench.suites import SUITES, Suite
from slimbayes.provenance import provenance

__all__ = ["SUITES", "run"]


def run(
    suite: str | Suite,
    cases: Sequence[str] | None = None,
    rounds: int = 50,
    threads: int = 1,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Measure the cases of a suite in one interleaved run.

    Torch's number of threads and its global generator are put back afterwards.

    Args:
        suite: A suite or its name in ``SUITES``.
        cases: Names of the cases to measure beside the baseline; None for all. One that cannot be built is an error.
        rounds: Timings of each case.
        threads: Torch's threads.
        seed: Of the networks, the rows, the order and the bootstrap. All cases start from the same network and rows.
        progress: Called with the rounds done and the rounds in all.

    Returns:
        JSON values: the suite, the settings, provenance, the machine's load before the run, and for each case the
        median seconds of a step and its ratio to the baseline, with quartiles and an interval.

    Example:
        >>> results = run("dense", cases=["batch_ensemble"], rounds=1)
        >>> list(results["results"]), results["results"]["plain"]["ratio"]
        (['plain', 'batch_ensemble'], 1.0)
    """
    if isinstance(suite, str):
        check_choice("suite", suite, SUITES)
        suite = SUITES[suite]
    check_count("rounds", rounds)
    check_count("threads", threads)
    chosen = suite.pick(cases)
    load = _load()
    steps = {}
    with _threads(threads), torch.random.fork_rng(range(torch.cuda.device_count())):
        for case in chosen:
            torch.manual_seed(seed)
            steps[case.name] = case.build()
        repetitions = calibrate(steps[suite.baseline])
        times = measure(steps, rounds, repetitions, progress=progress, seed=seed)
        source = provenance()
    return {
        "suite": suite.name,
        "description": suite.description,
        "settings": {
            "cases": list(steps),
            "baseline": suite.baseline,
            "rounds": rounds,
            "repetitions": repetitions,
            "threads": threads,
            "batch": suite.batch,
            "seed": seed,
        },
        **source,
        "load_before": load,
        "warning": _warning(load),
        "results": {
            name: {
                "seconds": float(np.median(times[name])),
                "ratio": ratio.median,
                "quartiles": list(ratio.quartiles),
                "interval": list(ratio.interval),
            }
            for name, ratio in ratios(times, suite.baseline, seed=seed).items()
        },
    }


def _load() -> float | None:
    """Return how many processes wanted to run in the last minute, on average; None where nobody counts them."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def _warning(load: float | None) -> str | None:
    """Return what a load before the run suggests about the ratios.

    A neighbour takes caches, memory bandwidth and clock frequency even when it has a core of its own. Half a process
    is more than a resting machine shows; a large one may have a twentieth of its cores at work unnoticed.
    """
    if load is None or load <= max(0.5, 0.05 * (os.cpu_count() or 1)):
        return None
    return (
        f"The load average was {load:.2f} before the run: another process seems to be busy, and the ratios are less "
        "certain than they look. Stop it, wait a minute and run again."
    )


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
