"""The price of every method on every network: what ``slimbayes bench`` measures."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from slimbayes._checks import check_choice, check_count
from slimbayes._provenance import provenance
from slimbayes.bench.lstm import LSTM, LSTM_ROWS
from slimbayes.bench.machine import load_average, load_warning, measuring
from slimbayes.bench.networks import MEMBERS, NETWORKS, BenchNetwork, find_network
from slimbayes.bench.price_rows import ROWS, Row
from slimbayes.bench.price_run import NetworkRun
from slimbayes.bench.steps import Step
from slimbayes.native import has_products, status

__all__ = ["all_networks", "run_price"]

#: That the timings of a network may take; slow ones need more for as many rounds.
SECONDS = {"conv_16": 50, "conv_64": 120, "mlp_512": 30, "mlp_1024": 40, "wrn_16_4": 140, "lstm_128": 25}
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
        profile: Say where the time goes in what ``"misses"`` its target, in ``"all"`` cases or in ``"none"``.

    Returns:
        JSON values: settings, provenance, whether compiled kernels are used and multiply matrices, the machine's load
        before the run; ``results[network][case]`` with the median seconds, the ratio to the plain network with
        quartiles and interval, the target and whether it is met (for memory bytes instead of seconds, and those of
        scratch memory, which is kept); in ``runs`` the rounds of each interleaved run; in ``profiles`` the operators
        that take longest; in ``seconds`` how long it all took.

    Example:
        >>> from slimbayes.bench.networks import dense_net
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
    place = torch.device(device)
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
            "device": str(place),
            "seed": seed,
        },
        "kernels": status(),
        "own_products": has_products(),
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
            run = NetworkRun(network, _rows(network, cases), extra, place, rounds, seconds, seed, profile)
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
        >>> list(all_networks())
        ['conv_16', 'conv_64', 'mlp_512', 'mlp_1024', 'wrn_16_4', 'lstm_128']
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
