"""What a method costs: the time of a training step, as a ratio to the plain network's."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from slimbayes._checks import check_choice, check_count
from slimbayes._provenance import provenance
from slimbayes.bench.compiled import COMPILED_SUITES
from slimbayes.bench.interleaved import calibrate, measure, summarise
from slimbayes.bench.machine import load_average, load_warning, measuring
from slimbayes.bench.suites import SUITES as EAGER_SUITES
from slimbayes.bench.suites import Suite

__all__ = ["SUITES", "run"]

#: By name.
SUITES = EAGER_SUITES | COMPILED_SUITES


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
    load = load_average()
    steps = {}
    with measuring(threads), torch.random.fork_rng(range(torch.cuda.device_count())):
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
        "warning": load_warning(load),
        "results": summarise(times, suite.baseline, seed),
    }
