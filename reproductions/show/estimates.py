"""A number and how sure we are of it: over seeds, or over examples where there is but one seed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from slimbayes.metrics.spread import standard_error

__all__ = ["Estimate", "Score", "as_words", "by_group", "estimate", "look_up", "row_title"]


class Score(NamedTuple):
    """One run's number; None stands for infinity, which JSON lacks."""

    value: float | None
    sem: float | None = None


class Estimate(NamedTuple):
    """A mean over seeds.

    Attributes:
        value: The mean.
        error: Its standard error over seeds; of one seed, that over test examples, if known.
        seeds: How many there are.
        sem: The standard error over test examples, mean over seeds, if known.
    """

    value: float
    error: float | None
    seeds: int
    sem: float | None = None


def look_up(record: Mapping[str, Any], path: Sequence[str]) -> Score | None:
    """Return the number at the end of a path, None if there is none.

    Example:
        >>> look_up({"test": {"nll": {"value": 0.5, "sem": 0.1}}}, ["test", "nll"])
        Score(value=0.5, sem=0.1)
        >>> look_up({"parameters": 7}, ["parameters"]), look_up({}, ["test", "nll"])
        (Score(value=7.0, sem=None), None)
    """
    found: Any = record
    for step in path:
        if not isinstance(found, Mapping) or step not in found:
            return None
        found = found[step]
    if isinstance(found, Mapping):
        return Score(found["value"], found.get("sem")) if "value" in found else None
    return Score(None if found is None else float(found))


def estimate(scores: Iterable[Score | None]) -> Estimate | None:
    """Return the mean over seeds, None if no seed has a number.

    Example:
        >>> estimate([Score(1.0), Score(2.0), Score(3.0), None])
        Estimate(value=2.0, error=0.5773502691896258, seeds=3, sem=None)
        >>> estimate([Score(1.0, 0.25)])
        Estimate(value=1.0, error=0.25, seeds=1, sem=0.25)
    """
    known = [score for score in scores if score is not None]
    if not known:
        return None
    values = [math.inf if score.value is None else score.value for score in known]
    sems = [score.sem for score in known if score.sem is not None]
    sem = sum(sems) / len(sems) if sems else None
    mean = sum(values) / len(values)
    if not math.isfinite(mean):
        return Estimate(mean, None, len(values))
    return Estimate(mean, sem if len(values) == 1 else standard_error(values), len(values), sem)


def as_words(found: Estimate | None, percent: bool = False, whole: bool = False) -> str:
    """Return a number as the papers print it: two digits of the standard error, and the value to the same place.

    Args:
        found: The number.
        percent: Multiply by 100; one or two decimals.
        whole: A count.

    Example:
        >>> as_words(Estimate(0.50123, 0.0061, 3)), as_words(Estimate(0.968, 0.0018, 3), percent=True)
        ('0.5012 ± 0.0061', '96.80 ± 0.18')
        >>> as_words(Estimate(5840.0, 190.0, 3)), as_words(Estimate(0.0477, None, 1)), as_words(None)
        ('5840 ± 190', '0.0477', '–')
    """
    if found is None:
        return "–"
    value, error = found.value, found.error
    if not math.isfinite(value):
        return "∞"
    if whole:
        return f"{value:,.0f}"
    if percent:
        value, error = 100 * value, None if error is None else 100 * error
    if not error:
        plain = f"{value:.1f}" if percent else f"{value:.4g}"
        return plain if error is None else f"{plain} ± 0"
    decimals = max(0, 1 - math.floor(math.log10(error)))
    if percent:
        decimals = min(max(decimals, 1), 2)
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


def by_group(runs: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the runs of each row: a method, and its override if it has one.

    Example:
        >>> runs = [{"method": "a", "override": None}, {"method": "a", "override": "slow"}]
        >>> list(by_group(runs))
        ['a', 'a, slow']
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        override = run.get("override")
        groups.setdefault(f"{run['method']}, {override}" if override else run["method"], []).append(run)
    return groups


def row_title(name: str) -> str:
    """Return a method's name for people.

    Example:
        >>> row_title("mean_field"), row_title("deep_ensemble")
        ('mean-field', 'deep ensemble')
    """
    return name.replace("mean_field", "mean-field").replace("_", " ")
