"""How time and memory of a train step grow with members, samples, width, depth, rows and length of sequences."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

import slimbayes as sb
from benchmarks.fits import fit_line, fit_power_law
from benchmarks.interleaved import calibrate, measure, summarise
from benchmarks.lstm import LastOutput
from benchmarks.machine import load_average, load_warning, measuring
from benchmarks.memory import peak_memory
from benchmarks.networks import CLASSES, BenchNetwork, find_network
from benchmarks.steps import Step, train_step
from slimbayes import nets
from slimbayes._checks import check_choice, check_count
from slimbayes._provenance import provenance
from slimbayes._text_table import aligned, as_markdown
from slimbayes.report.figures._panels import Panels, short
from slimbayes.report.figures._style import MUTED, Drawing, series, styled

__all__ = [
    "AXES",
    "SPLITTING_NETWORKS",
    "SPLITTING_TARGET",
    "Axis",
    "Point",
    "growth_figure",
    "growth_points_table",
    "growth_table",
    "run_growth",
    "splitting_table",
]


@dataclass(frozen=True)
class Point:
    """A rank-1 network with noise per example, and the batch that it is trained on.

    Attributes:
        members: Mixture components K.
        samples: Draws of each member.
        width: Units of a layer, and of the inputs.
        depth: Linear layers of the MLP.
        rows: That run through the network with one sample: examples times K, or examples if they are split.
        steps: Length of the sequences of an LSTM; None for an MLP.
        split: Deal the examples out among the members instead of showing each to all.
    """

    members: int = 4
    samples: int = 1
    width: int = 256
    depth: int = 3
    rows: int = 256
    steps: int | None = None
    split: bool = False

    @property
    def examples(self) -> int:
        """Examples of a batch."""
        return self.rows if self.split else self.rows // self.members

    def build(self) -> tuple[sb.BayesianModel, Step]:
        """Return the model and its train step, from torch's global generator.

        Example:
            >>> model, step = Point(width=8, rows=8).build()
            >>> step()
            >>> model.members
            4
        """
        shape = (self.width,) if self.steps is None else (self.steps, self.width)
        batch = torch.randn(self.examples, *shape), torch.randint(CLASSES, (self.examples,))
        model = sb.rank1(self._network(), members=self.members, train_on="split" if self.split else "tile")
        step = train_step(model, [batch])
        if self.samples > 1:
            model.forward = partial(model.forward, samples=self.samples)  # type: ignore[method-assign]
        return model, step

    def _network(self) -> nn.Module:
        if self.steps is not None:
            return LastOutput(self.width)
        return nets.MLP(self.width, [self.width] * (self.depth - 1), CLASSES)


@dataclass(frozen=True)
class Axis:
    """Points that differ in one thing.

    Attributes:
        name: What the command line calls it.
        title: What tables call it.
        vary: The field of ``Point`` that takes the values.
        values: Ascending.
        base: The other fields' values.
        rows_follow: Rows for each unit of the value, where more of it means more rows.

    Example:
        >>> AXES["depth"].points()[0].depth, AXES["members"].points()[-1].rows
        (2, 4096)
    """

    name: str
    title: str
    vary: str
    values: tuple[int, ...]
    base: Point = field(default_factory=Point)
    rows_follow: int | None = None

    def points(self) -> list[Point]:
        """Return one point for each value."""
        return [replace(self.base, **self._changes(value)) for value in self.values]

    def _changes(self, value: int) -> dict[str, Any]:
        rows = {} if self.rows_follow is None else {"rows": self.rows_follow * value}
        return {self.vary: value, **rows}


def _doubling(first: int, last: int) -> tuple[int, ...]:
    return tuple(first * 2**power for power in range((last // first).bit_length()))


_BASE, _SEQUENCE = Point(), Point(width=128, rows=32, steps=32)

#: By name.
AXES = {
    axis.name: axis
    for axis in (
        Axis("members", "members, each on all examples", "members", _doubling(1, 64), _BASE, 64),
        Axis("split", "members, examples split", "members", _doubling(1, 64), replace(_BASE, split=True)),
        Axis("samples", "samples", "samples", _doubling(1, 16), _BASE),
        Axis("width", "width", "width", _doubling(64, 1024), _BASE),
        Axis("depth", "depth", "depth", _doubling(2, 32), _BASE),
        Axis("rows", "rows", "rows", _doubling(64, 4096), _BASE),
        Axis("steps", "length of the sequence (LSTM)", "steps", _doubling(8, 128), _SEQUENCE),
    )
}


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
        for position, axis in enumerate(chosen):
            before = position * of_axis
            tell = _shifted(progress, before, total)
            results["axes"][axis.name] = _measure_axis(axis, points, of_axis, seed, tell)
            if save is not None:
                save(results)
        for position, network in enumerate(networks):
            tell = _shifted(progress, of_axis * len(chosen) + position * of_network, total)
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


MEBIBYTE = 2**20


def growth_table(results: dict[str, Any], markdown: bool = False) -> str:
    """Return how time and memory grow along each axis, and what splitting costs.

    Args:
        results: What ``run_growth`` returned.
        markdown: Write Markdown tables instead of aligned columns with a note.

    Example:
        >>> line = {"intercept": 0.001, "slope": 1e-4, "misfit": 0.1}
        >>> law = {"power_law": {"slope": 1.0, "error": 0.01}, "line": line}
        >>> axis = {"title": "rows", "points": [{"value": 64}, {"value": 128}]}
        >>> axis["fits"] = {"seconds": law, "activation_bytes": law}
        >>> print(growth_table({"axes": {"rows": axis}, "splitting": {}}, markdown=True))
        | axis | from, to | slope of time | slope of memory | ms per step | off by at most |
        |---|---|---|---|---|---|
        | rows | 64, 128 | 1.00 ± 0.01 | 1.00 ± 0.01 | 1 + 0.1 x | 10% |
    """
    rows = [["axis", "from, to", "slope of time", "slope of memory", "ms per step", "off by at most"]]
    for axis in results["axes"].values():
        line = axis["fits"]["seconds"]["line"]
        first, last = (axis["points"][position]["value"] for position in (0, -1))
        slopes = [_slope(axis["fits"][name]["power_law"]) for name in ("seconds", "activation_bytes")]
        rows.append([axis["title"], f"{first}, {last}", *slopes, _line(line), f"{100 * line['misfit']:.0f}%"])
    tables = [as_markdown(rows) if markdown else aligned(rows)] if results["axes"] else []
    if results["splitting"]:
        tables.append(splitting_table(results, markdown))
    if not markdown:
        tables.append(_note(results))
    return "\n\n".join(tables)


def splitting_table(results: dict[str, Any], markdown: bool = False) -> str:
    """Return what many members by splitting cost, as a ratio to one member; see ``growth_table``."""
    rows = [["network", "rows per member", "ms with one member", "ratio", "quartiles", "95% interval", "target", "met"]]
    rows += [
        [
            one["title"],
            f"{one['rows_per_member']:g}",
            f"{1000 * one['seconds_of_one']:.2f}",
            f"{one['ratio']:.3f}",
            *(f"{low:.3f} to {high:.3f}" for low, high in (one["quartiles"], one["interval"])),
            f"{one['target']:g}",
            "yes" if one["met"] else "no",
        ]
        for one in results["splitting"].values()
    ]
    return as_markdown(rows) if markdown else aligned(rows)


def growth_points_table(results: dict[str, Any], markdown: bool = False) -> str:
    """Return time and memory of every measured point; see ``growth_table``.

    Example:
        >>> axis = {"title": "rows", "points": [{"value": 64, "seconds": 0.001, "activation_bytes": 2**20}]}
        >>> print(growth_points_table({"axes": {"rows": axis}}, markdown=True))
        | axis | value | ms per step | MiB of activations |
        |---|---|---|---|
        | rows | 64 | 1.00 | 1.00 |
    """
    rows = [["axis", "value", "ms per step", "MiB of activations"]]
    for axis in results["axes"].values():
        for point in axis["points"]:
            size = point["activation_bytes"] / MEBIBYTE
            rows.append([axis["title"], str(point["value"]), f"{1000 * point['seconds']:.2f}", f"{size:.2f}"])
    return as_markdown(rows) if markdown else aligned(rows)


def _slope(law: dict[str, float]) -> str:
    return f"{law['slope']:.2f} ± {law['error']:.2f}"


def _line(line: dict[str, float]) -> str:
    intercept, slope = 1000 * line["intercept"], 1000 * line["slope"]
    return f"{intercept:.3g} {'-' if slope < 0 else '+'} {abs(slope):.2g} x"


def _note(results: dict[str, Any]) -> str:
    settings = results["settings"]
    return (
        f"Rank-1 networks, noise per example, {settings['threads']} thread{'s' if settings['threads'] > 1 else ''}. "
        f"Slopes of log time and log memory (peak of activations) against log x, with standard errors; medians of "
        f"{settings['rounds']} interleaved rounds.\nThe line a + b x is fitted to relative distances. Splitting: "
        f"ratio to one member on the same rows, {settings['splitting_rounds']} interleaved rounds."
    )


_CURVES = {"seconds": "time", "activation_bytes": "memory of activations"}


@styled()
def growth_figure(results: dict[str, Any]) -> Drawing:
    """Draw what ``run_growth`` returned; ``slimbayes.report._svg.save`` writes it.

    Example:
        >>> points = [{"value": v, "seconds": 0.1 * v, "activation_bytes": 2**20} for v in (1, 2, 4)]
        >>> drawing = growth_figure({"axes": {"rows": {"title": "rows", "points": points}}})
        >>> drawing.key, drawing.table[1]
        ('growth', ['rows', '1', '100.00', '1.00'])
    """
    axes = results["axes"]
    panels = Panels(len(axes), 3, legend=list(_CURVES.values()), top=0.28)
    table = [["Axis", "Value", "Milliseconds", "MiB"]]
    for ax, axis in zip(panels.axes, axes.values(), strict=True):
        values = [point["value"] for point in axis["points"]]
        ax.plot(values, [value / values[0] for value in values], color=MUTED, linewidth=0.6, linestyle=":")
        for position, name in enumerate(_CURVES):
            sizes = [point[name] for point in axis["points"]]
            ax.plot(values, [size / sizes[0] for size in sizes], **series(position).line)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=2)
        ax.set_title(short(axis["title"]))
        for scale in (ax.xaxis, ax.yaxis):
            scale.set_major_formatter(lambda value, _: f"{value:g}")
        table += [
            [
                axis["title"],
                str(point["value"]),
                f"{1000 * point['seconds']:.2f}",
                f"{point['activation_bytes'] / MEBIBYTE:.2f}",
            ]
            for point in axis["points"]
        ]
    panels.outer("", "relative to the first")
    return Drawing(
        "growth",
        "Growth of a train step",
        "Time and memory of a train step relative to the smallest size; dotted: proportional to the axis.",
        f"Curves of time and memory along {len(axes)} axes, from one to that many times the smallest size.",
        panels.figure,
        table,
    )
