"""The price of every method on every network: what ``python -m benchmarks`` measures."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks.hot_spots import hot_spots
from benchmarks.interleaved import summarise
from benchmarks.lstm import LSTM, LSTM_ROWS
from benchmarks.machine import clock_of, load_average, load_warning, measuring, torch_threads
from benchmarks.memory import Peak, peak_memory
from benchmarks.networks import MEMBERS, NETWORKS, BenchNetwork, find_network
from benchmarks.price_rows import MEMORY, PREDICTION, ROWS, TRAIN, Row
from benchmarks.steps import Step
from benchmarks.timing import Timed, time_cases
from slimbayes._checks import check_choice, check_count
from slimbayes._provenance import provenance

__all__ = ["NetworkRun", "all_networks", "run_price"]


Builders = Mapping[str, Callable[[], Step]]
#: Of the network's seconds; predictions are shorter than train steps.
SHARES = {TRAIN: 0.8, PREDICTION: 0.2}


@dataclass
class NetworkRun:
    """Measures rows of the table on one network.

    Attributes:
        network: The network.
        rows: What to measure, by name; the first of each kind is what the others are divided by.
        extra: By name, what makes another train step to time.
        device: Where to measure.
        rounds: Timings of each case; None for as many as fit.
        seconds: That the timings may take if ``rounds`` is None.
        seed: Of networks, rows, order and bootstrap.
        profile: ``"misses"``, ``"all"`` or ``"none"``.
        results: By case, what was measured.
        runs: By kind, the rounds and calls.
        profiles: By case, the operators that take longest, beside those of the baseline; of memory, those that made
            what is held at its peak.
    """

    network: BenchNetwork
    rows: dict[str, Row]
    extra: Builders
    device: torch.device
    rounds: int | None
    seconds: float
    seed: int
    profile: str
    results: dict[str, Any] = field(default_factory=dict)
    runs: dict[str, Any] = field(default_factory=dict)
    profiles: dict[str, Any] = field(default_factory=dict)

    def measure(self, progress: Callable[[float], None]) -> None:
        """Time the train steps, then the predictions, then count the memory.

        Args:
            progress: Called with the share that is done.
        """
        with torch_threads(self.network.threads):
            self._measure(progress)

    def _measure(self, progress: Callable[[float], None]) -> None:
        done = 0.0
        for kind, share in SHARES.items():
            self._time(kind, share, lambda part, done=done, share=share: progress(done + share * part))  # type: ignore[misc]
            done += share
        self._count_memory()
        progress(1.0)

    def _of(self, kind: str) -> list[Row]:
        """Return the rows of a kind, the baseline first; none if there is nothing to divide by it."""
        rows = [row for row in self.rows.values() if row.kind == kind]
        return rows if len(rows) > 1 or (rows and kind == TRAIN and self.extra) else []

    def _time(self, kind: str, share: float, progress: Callable[[float], None]) -> None:
        rows = self._of(kind)
        if not rows:
            return
        builders: dict[str, Callable[[], Step]] = {row.name: self._builder(row) for row in rows}
        if kind == TRAIN:
            builders.update(self.extra)
        baseline, clock = rows[0].name, clock_of(self.device)
        timed = time_cases(builders, baseline, share * self.seconds, self.rounds, self.seed, progress, clock)
        self.runs[kind] = {name: getattr(timed, name) for name in ("rounds", "repetitions", "warmup")}
        measured = summarise(timed.times, baseline, self.seed)
        for row in rows:
            if row.name != baseline:
                measured[row.name].update(self._judge(row, measured[row.name]["ratio"]))
            if row.also_against in timed.times:
                against = summarise(timed.times, row.also_against, self.seed)[row.name]
                measured[f"{row.name} against {row.also_against}"] = against
        self.results.update(measured)
        self._profile(timed, baseline, measured)

    def _builder(self, row: Row) -> Callable[[], Step]:
        return lambda: row.build(self.network, self.device)[1]

    def _judge(self, row: Row, ratio: float) -> dict[str, Any]:
        target = row.targets.get(self.network.name)
        return {"target": target, "met": None if target is None else ratio <= target}

    def _profile(self, timed: Timed, baseline: str, measured: dict[str, Any]) -> None:
        for name in self._asked(timed.steps, baseline, measured):
            self.profiles[name] = hot_spots(timed.steps[name], measured[name]["seconds"], self.device)

    def _asked(self, names: Iterable[str], baseline: str, measured: dict[str, Any]) -> list[str]:
        """Return the cases whose profile is wanted, the baseline first."""
        wanted = {"misses": lambda one: one.get("met") is False, "all": lambda one: True, "none": lambda one: False}
        chosen = [name for name in names if name != baseline and wanted[self.profile](measured[name])]
        return [baseline, *chosen] if chosen else []

    def _count_memory(self) -> None:
        rows = self._of(MEMORY)
        peaks = {row.name: self._peak(row) for row in rows}
        for row in rows:
            peak, plain = peaks[row.name], peaks[rows[0].name]
            ratio = peak.activations / plain.activations
            self.results[row.name] = {
                "bytes": peak.activations,
                "ratio": ratio,
                "total_bytes": peak.total,
                "total_ratio": peak.total / plain.total,
                **(self._judge(row, ratio) if row is not rows[0] else {}),
            }
        for name in self._asked(peaks, rows[0].name, self.results) if rows else []:
            self.profiles[name] = [{"operator": maker, "bytes": size} for maker, size in peaks[name].makers.items()]

    def _peak(self, row: Row) -> Peak:
        torch.manual_seed(self.seed)
        model, step = row.build(self.network, self.device)
        step()  # makes the optimiser's state
        peak, batch = peak_memory(step, model.parameters()), row.batch_bytes(self.network)
        # A model repeats its batch inside the step; the plain network's rows, as many, are there before.
        return Peak(peak.total + batch, peak.activations + batch, {**peak.makers, "the batch": batch})


#: That the timings of a network may take; slow ones need more for as many rounds.
SECONDS = {
    "conv_16": 35,
    "conv_64": 65,
    "mlp_512": 25,
    "mlp_1024": 35,
    "wrn_16_4": 70,
    "resnet_20": 50,
    "resnet_20_bf16": 45,
    "resnet_20_2": 35,
    LSTM.name: 15,
}

PROFILES = ("misses", "all", "none")


def run_price(
    networks: Sequence[str | BenchNetwork] | None = None,
    rounds: int | None = None,
    threads: int = 1,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    extra_cases: Callable[[BenchNetwork], dict[str, Callable[[], Step]]] | None = None,
    save: Callable[[dict[str, Any]], None] | None = None,
    device: torch.device | str = "cpu",
    cases: Sequence[str] | None = None,
    profile: str = "misses",
) -> dict[str, Any]:
    """Measure what every method costs on every network, as a ratio to the plain network on as many rows.

    Each network has one interleaved run of train steps and one of predictions. Torch's number of threads and its
    global generator are put back afterwards.

    Args:
        networks: Networks, or their names in ``NETWORKS`` or ``"lstm_128"``; None for all.
        rounds: Timings of each case; None for as many as fit into the seconds that each network is given.
        threads: Torch's threads.
        seed: Of the networks, the rows, the order and the bootstrap.
        progress: Called with the percent done, and 100.
        extra_cases: For each network but the LSTM, by name, what makes a train step to time beside ours.
        save: Called with the results so far after each network.
        device: Where to measure.
        cases: Names in ``ROWS`` or ``LSTM_ROWS``; None for all. What they are divided by is always measured.
        profile: Say where the time goes in ``"misses"``, which cost more than expected, in ``"all"`` or ``"none"``.

    Returns:
        JSON values: settings, provenance, whether compiled kernels are used, the machine's load
        before the run; ``results[network][case]`` with the median seconds, the ratio to the plain network with
        quartiles and interval, the target and whether it is met (for memory bytes instead of
        seconds); in ``runs`` the rounds of each interleaved run; in ``profiles`` the operators
        that take longest; in ``seconds`` how long it all took.

    Example:
        >>> from benchmarks.networks import dense_net
        >>> tiny = BenchNetwork("tiny", "MLP 4", lambda: dense_net(4), (4,), 8)
        >>> results = run_price([tiny], rounds=1, cases=["rank1 split"])["results"]["tiny"]
        >>> list(results), results["plain"]["ratio"], results["rank1 split"]["target"]
        (['plain', 'rank1 split'], 1.0, None)
    """
    chosen = [
        find_network(one, "networks", all_networks()) for one in (all_networks() if networks is None else networks)
    ]
    for name in cases or ():
        check_choice("cases", name, [*ROWS, *LSTM_ROWS])
    if rounds is not None:
        check_count("rounds", rounds)
    check_count("threads", threads)
    check_choice("profile", profile, PROFILES)
    where = torch.device(device)
    load = load_average()
    results: dict[str, Any] = {
        "suite": "price",
        "description": "ratio to the plain network on as many rows",
        "settings": {
            "networks": {network.name: _settings(network) for network in chosen},
            "cases": None if cases is None else list(cases),
            "rounds": rounds,
            "members": MEMBERS,
            "threads": threads,
            "device": str(where),
            "seed": seed,
        },
        "kernels": _kernels(),
        "load_before": load,
        "warning": load_warning(load),
        "results": {},
        "runs": {},
        "profiles": {},
    }
    start = time.monotonic()
    parts = _Parts(progress, [SECONDS.get(network.name, 10) for network in chosen])
    with measuring(threads), torch.random.fork_rng(range(torch.cuda.device_count())):
        results.update(provenance())
        for network, seconds in zip(chosen, parts.sizes, strict=True):
            extra = {} if extra_cases is None or network is LSTM else extra_cases(network)
            run = NetworkRun(network, _rows(network, cases), extra, where, rounds, seconds, seed, profile)
            run.measure(parts.next())
            results["results"][network.name] = run.results
            results["runs"][network.name] = run.runs
            results["profiles"][network.name] = run.profiles
            results["seconds"] = time.monotonic() - start
            if save is not None:
                save(results)
    return results


def all_networks() -> dict[str, BenchNetwork]:
    """Return every network of the table by name.

    Example:
        >>> "conv_16" in all_networks(), "lstm_128" in all_networks()
        (True, True)
    """
    return {**NETWORKS, LSTM.name: LSTM}


def _rows(network: BenchNetwork, cases: Sequence[str] | None) -> dict[str, Row]:
    """Return the rows to measure; without a choice of cases, or if they are asked for, or to divide by."""
    known = {name: row for name, row in (LSTM_ROWS if network is LSTM else ROWS).items() if row.applies(network)}
    first = {row.kind: row.name for row in reversed(known.values())}
    return {name: row for name, row in known.items() if cases is None or name in (*cases, first[row.kind])}


def _settings(network: BenchNetwork) -> dict[str, Any]:
    return {
        "title": network.title,
        "rows": network.rows,
        "row_shape": list(network.row_shape),
        "channels_last": network.channels_last,
        "bfloat16": network.bfloat16,
        "threads": network.threads,
    }


class _Parts:
    """Percent done of a task whose parts have different sizes."""

    def __init__(self, progress: Callable[[int, int], None], sizes: list[int]) -> None:
        self.progress, self.sizes = progress, sizes
        self.begun = 0

    def next(self) -> Callable[[float], None]:
        """Begin the next part, and return what is to be told the share of it that is done."""
        before, size, total = sum(self.sizes[: self.begun]), self.sizes[self.begun], sum(self.sizes)
        self.begun += 1
        return lambda share: self.progress(int(100 * (before + size * share) / total), 100)


def _kernels() -> str:
    try:
        from slimbayes._fast.library import status
    except ImportError:
        return "not there: slimbayes._fast is deleted"
    return status()
