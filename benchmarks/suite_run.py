"""What a method costs: the time of a training step, as a ratio to the plain network's."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.interleaved import calibrate, measure, summarise
from benchmarks.machine import load_average, load_warning, measuring
from benchmarks.suites import SUITES, Suite
from slimbayes._checks import check_choice, check_count
from slimbayes._provenance import provenance
from slimbayes._text_table import aligned, as_markdown

__all__ = ["run", "table"]


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


HEADINGS = ["case", "ms per step", "ratio", "quartiles", "95% interval"]


def table(results: dict[str, Any], markdown: bool = False) -> str:
    """Return a benchmark's results as text.

    Args:
        results: What ``run`` returned.
        markdown: Write a Markdown table instead of aligned columns.

    Example:
        >>> case = {"seconds": 0.01, "ratio": 1.0, "quartiles": [1.0, 1.0], "interval": [1.0, 1.0]}
        >>> print(table({"results": {"plain": case}}, markdown=True))
        | case | ms per step | ratio | quartiles | 95% interval |
        |---|---|---|---|---|
        | plain | 10.00 | 1.000 | 1.000 to 1.000 | 1.000 to 1.000 |
    """
    rows = [HEADINGS] + [
        [name, f"{1000 * one['seconds']:.2f}", f"{one['ratio']:.3f}", _range(one["quartiles"]), _range(one["interval"])]
        for name, one in results["results"].items()
    ]
    if markdown:
        return as_markdown(rows)
    settings = results["settings"]
    note = (
        f"{results['suite']}: {results['description']}; {settings['threads']} "
        f"thread{'s' if settings['threads'] > 1 else ''}.\nRatio to {settings['baseline']}: median over "
        f"{settings['rounds']} interleaved rounds of {settings['repetitions']} steps, quartiles of the rounds, "
        "interval of the median."
    )
    return f"{aligned(rows)}\n{note}"


def _range(pair: list[float]) -> str:
    return f"{pair[0]:.3f} to {pair[1]:.3f}"
