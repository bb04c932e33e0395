"""One network's part of the price table."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from slimbayes.bench.hot_spots import hot_spots
from slimbayes.bench.interleaved import summarise
from slimbayes.bench.machine import clock_of
from slimbayes.bench.memory import Peak, peak_memory
from slimbayes.bench.networks import BenchNetwork
from slimbayes.bench.price_rows import MEMORY, PREDICTION, TRAIN, Row
from slimbayes.bench.steps import Step
from slimbayes.bench.timing import Timed, time_cases
from slimbayes.layers.scratch import release_scratch, scratch_bytes

__all__ = ["NetworkRun"]

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
        peaks, kept = {}, {}
        for row in rows:
            release_scratch()
            peaks[row.name] = self._peak(row)
            kept[row.name] = scratch_bytes()
        for row in rows:
            peak, plain = peaks[row.name], peaks[rows[0].name]
            ratio = peak.activations / plain.activations
            self.results[row.name] = {
                "bytes": peak.activations,
                "ratio": ratio,
                "total_bytes": peak.total,
                "total_ratio": peak.total / plain.total,
                "scratch_bytes": kept[row.name],
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
