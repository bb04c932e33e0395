"""How time and memory of a train step grow with members, samples, width, depth, rows and length of sequences."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

import slimbayes as sb
from slimbayes._checks import check_choice, check_count
from slimbayes._provenance import provenance
from slimbayes.bench.fits import fit_line, fit_power_law
from slimbayes.bench.growth_points import AXES, Axis
from slimbayes.bench.interleaved import calibrate, measure, summarise
from slimbayes.bench.machine import load_average, load_warning, measuring
from slimbayes.bench.memory import peak_memory
from slimbayes.bench.networks import CLASSES, BenchNetwork, find_network
from slimbayes.bench.steps import Step, train_step

__all__ = ["SPLITTING_NETWORKS", "SPLITTING_TARGET", "run_growth"]

#: Members that are split among, against one, and what that may cost.
SPLITTING_MEMBERS, SPLITTING_TARGET = 32, 1.2
#: Networks on which that is measured.
SPLITTING_NETWORKS = ("mlp_512", "conv_16")
ROUNDS, SPLITTING_ROUNDS = 20, 60

Progress = Callable[[int, int], None]


def run_growth(
    axes: Sequence[str | Axis] | None = None,
    points: int | None = None,
    rounds: int | None = None,
    splitting: Sequence[str | BenchNetwork] = SPLITTING_NETWORKS,
    threads: int = 1,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
    save: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Measure a rank-1 network's train step along every axis, and fit how it grows.

    The points of an axis are measured in one interleaved run. Torch's number of threads and its global generator are
    put back afterwards.

    Args:
        axes: Axes or their names in ``AXES``; None for all.
        points: Measure only so many of each axis's points, the smallest; at least three. None for all.
        rounds: Timings of each point; None for 20, and 60 where members are split among.
        splitting: Networks, or their names, on which 32 members by splitting are measured against one.
        threads: Torch's threads.
        seed: Of the networks, the rows, the order and the bootstrap.
        progress: Called with the rounds done and the rounds in all.
        save: Called with the results so far after each axis and network.

    Returns:
        JSON values: the settings, provenance, the machine's load before the run; for each axis the seconds and bytes
        of each point with the fits; for each network of ``splitting`` the ratio with quartiles, interval and target.

    Example:
        >>> tiny = Axis("width", "width", "width", (4, 8, 16))
        >>> results = run_growth([tiny], rounds=1, splitting=[])
        >>> [point["value"] for point in results["axes"]["width"]["points"]]
        [4, 8, 16]
    """
    chosen = [_axis(axis) for axis in (AXES if axes is None else axes)]
    networks = [find_network(network, "splitting") for network in splitting]
    check_count("threads", threads)
    if points is not None:
        check_count("points", points, 3, "Two points always lie on a power law.")
    if rounds is not None:
        check_count("rounds", rounds)
    load = load_average()
    of_axis, of_network = rounds or ROUNDS, rounds or SPLITTING_ROUNDS
    total = of_axis * len(chosen) + of_network * len(networks)
    with measuring(threads), torch.random.fork_rng(range(torch.cuda.device_count())):
        results: dict[str, Any] = {
            "suite": "growth",
            "settings": {"rounds": of_axis, "splitting_rounds": of_network, "threads": threads, "seed": seed},
            **provenance(),
            "load_before": load,
            "warning": load_warning(load),
            "axes": {},
            "splitting": {},
        }
        for place, axis in enumerate(chosen):
            before = place * of_axis
            tell = _shifted(progress, before, total)
            results["axes"][axis.name] = _measure_axis(axis, points, of_axis, seed, tell)
            if save is not None:
                save(results)
        for place, network in enumerate(networks):
            tell = _shifted(progress, of_axis * len(chosen) + place * of_network, total)
            results["splitting"][network.name] = _measure_splitting(network, of_network, seed, tell)
            if save is not None:
                save(results)
    return results


def _axis(axis: str | Axis) -> Axis:
    if isinstance(axis, Axis):
        return axis
    check_choice("axes", axis, AXES)
    return AXES[axis]


def _shifted(progress: Progress, before: int, total: int) -> Progress:
    return lambda done, _: progress(before + done, total)


def _measure_axis(axis: Axis, count: int | None, rounds: int, seed: int, progress: Progress) -> dict[str, Any]:
    points = axis.points()[:count]
    values = axis.values[:count]
    steps: dict[str, Step] = {}
    bytes_, calls = [], []
    for value, point in zip(values, points, strict=True):
        torch.manual_seed(seed)
        model, step = point.build()
        # Small steps are called more often in one timing: each timing is long enough, and none longer than need be.
        calls.append(calibrate(step))
        bytes_.append(peak_memory(step, model.parameters()).activations)
        steps[str(value)] = _repeated(step, calls[-1])
    times = measure(steps, rounds, progress=progress, seed=seed)
    seconds = [times[str(value)] / count for value, count in zip(values, calls, strict=True)]
    medians = [float(np.median(one)) for one in seconds]
    return {
        "title": axis.title,
        "vary": axis.vary,
        "base": asdict(axis.base),
        "rows_follow": axis.rows_follow,
        "points": [
            {
                "value": value,
                "seconds": float(np.median(one)),
                "quartiles": np.percentile(one, [25, 75]).tolist(),
                "activation_bytes": size,
                "repetitions": repetitions,
            }
            for value, one, size, repetitions in zip(values, seconds, bytes_, calls, strict=True)
        ],
        "fits": {
            name: {"power_law": fit_power_law(values, y)._asdict(), "line": fit_line(values, y)._asdict()}
            for name, y in (("seconds", medians), ("activation_bytes", bytes_))
        },
    }


def _repeated(step: Step, count: int) -> Step:
    def steps() -> None:
        for _ in range(count):
            step()

    return steps


def _measure_splitting(network: BenchNetwork, rounds: int, seed: int, progress: Progress) -> dict[str, Any]:
    steps: dict[str, Step] = {}
    one, many = "members=1", f"members={SPLITTING_MEMBERS}"
    # One member has nothing to split: the same model without the price of dealing.
    for name, members, train_on in ((one, 1, "tile"), (many, SPLITTING_MEMBERS, "split")):
        torch.manual_seed(seed)
        net, x, y = network.build(), network.inputs(), torch.randint(CLASSES, (network.rows,))
        steps[name] = train_step(network.place(sb.rank1(net, members=members, train_on=train_on)), [(x, y)])
    repetitions = calibrate(steps[one])
    measured = summarise(measure(steps, rounds, repetitions, progress=progress, seed=seed), one, seed)
    return {
        "title": network.title,
        "rows": network.rows,
        "rows_per_member": network.rows / SPLITTING_MEMBERS,
        "repetitions": repetitions,
        "seconds_of_one": measured[one]["seconds"],
        **measured[many],
        "target": SPLITTING_TARGET,
        "met": measured[many]["ratio"] <= SPLITTING_TARGET,
    }
