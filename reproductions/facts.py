"""What people ask about an item before they run it, and about its runs afterwards."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from reproductions.item import Item
from reproductions.stored import Sources
from reproductions.study import Study

__all__ = ["Facts", "facts_of", "hardware_at", "hours_at"]


class Facts(NamedTuple):
    """How one study was run.

    Attributes:
        study: Its name.
        title: What people call it.
        scale: The scale whose runs are shown.
        stored: How many runs are stored,
        planned: of how many.
        seeds: How many of them.
        epochs: Of the runs, such as ``"300"`` or ``"100 to 300"``.
        hours: What the stored runs took together.
        cut: What is less than in the paper.
        on: What they ran on.
        commits: Of the code.
    """

    study: str
    title: str
    scale: str
    stored: int
    planned: int
    seeds: int
    epochs: str
    hours: float
    cut: str
    on: list[str]
    commits: list[str]


def facts_of(sources: Sources, study: str) -> Facts | None:
    """Return how a study was run, None if it has not been."""
    scale, runs = sources.scale(study), sources.runs(study)
    if scale is None:
        return None
    known = sources.studies[study]
    return Facts(
        study,
        known.title,
        scale,
        len(runs),
        len(known.cells(scale)),
        len({run["seed"] for run in runs}),
        _range([run["epochs"] for run in runs]),
        sum(run["seconds"] for run in runs) / 3600,
        known.scale(scale).cut.strip() or "nothing",
        _once(_machine(run["hardware"]) for run in runs if run.get("hardware")),
        _once(
            str(run["commit"])[:10] + "-dirty" * str(run["commit"]).endswith("-dirty")
            for run in runs
            if run.get("commit")
        ),
    )


def hours_at(sources: Sources, item: Item, scale: str) -> float | None:
    """Return the hours that an item's runs take one after another, as ``make reproduce`` makes them at a scale.

    A study without the scale has its nearest one; None if there is nothing to run.
    """
    hours = [study.hours(near) for study, near in _having(sources, item, scale)]
    return sum(hours) if hours else None


def hardware_at(sources: Sources, item: Item, scale: str) -> list[str]:
    """Return what the hours are counted on."""
    return _once(study.scale(near).hardware for study, near in _having(sources, item, scale))


def _having(sources: Sources, item: Item, scale: str) -> list[tuple[Study, str]]:
    studies = [sources.studies[name] for name in item.studies if name in sources.studies]
    return [(study, near) for study in studies if (near := study.nearest(scale)) in study.scales]


def _range(numbers: Iterable[float]) -> str:
    known = sorted(set(numbers))
    if not known:
        return ""
    return f"{known[0]:g}" if len(known) == 1 else f"{known[0]:g} to {known[-1]:g}"


def _machine(hardware: dict[str, Any]) -> str:
    what = hardware.get("gpu") or hardware.get("processor") or hardware.get("machine")
    return f"{what}, {hardware.get('threads')} of {hardware.get('cores')} cores for each run"


def _once(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words))
