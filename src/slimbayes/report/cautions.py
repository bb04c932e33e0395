"""What a reader has to know before trusting a comparison."""

from collections.abc import Callable, Sequence
from typing import Any

from slimbayes.evaluation.record import Evaluation
from slimbayes.report.comparison import Comparison
from slimbayes.report.words import listing

__all__ = ["cautions"]

#: Methods whose draws of a member are all the same: one is as good as many.
FIXED = ("deterministic", "batch_ensemble", "deep_ensemble", "sgmcmc")


def cautions(comparison: Comparison) -> list[str]:
    """Return reasons for caution: evaluations that are incomplete, or that differ in what they were evaluated on."""
    said = [_incomplete(comparison), _limited(comparison), *_unlike(comparison), _repeated(comparison)]
    return [text for text in said if text]


def _incomplete(comparison: Comparison) -> str | None:
    names = [one.content["name"] for one in comparison.evaluations if not one.content.get("complete", True)]
    if not names:
        return None
    verb = "is" if len(names) == 1 else "are"
    return (
        f"The evaluation of {listing(names)} {verb} not complete. Finish it with slimbayes evaluate, then report again."
    )


def _limited(comparison: Comparison) -> str | None:
    limits = {_setting(one, "limit") for one in comparison.evaluations} - {None}
    return f"Only the first {listing(sorted(map(str, limits)))} test examples were used." if limits else None


def _unlike(comparison: Comparison) -> list[str | None]:
    """Name what the runs do not share though their numbers stand side by side."""
    runs = comparison.evaluations
    return [
        _differ(
            [one for one in runs if one.content["method"] not in FIXED],
            lambda one: one.samples[-1] * one.content["members"],
            "number of draws, all members together",
        ),
        _differ(runs, lambda one: one.result()["clean"].get("examples"), "number of test examples"),
        _differ(runs, lambda one: _setting(one, "which"), "checkpoint"),
        _differ(runs, _conditions, "corruptions", "Means over corruptions cannot be compared."),
    ]


def _differ(runs: Sequence[Evaluation], get: Callable[[Evaluation], Any], what: str, so: str = "") -> str | None:
    values = list(dict.fromkeys(map(get, runs)))
    if len(values) < 2:
        return None
    listed = f": {listing(list(map(str, values)))}" if not so else ""
    return f"The runs differ in their {what}{listed}. {so}".strip()


def _conditions(one: Evaluation) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, severity) for name, severity, _ in one.corrupted()))


def _repeated(comparison: Comparison) -> str | None:
    """Name methods that hold the same seed twice: their standard error would be too small."""
    titles = []
    for title, group in comparison.groups.items():
        seeds = [one.content.get("seed") for one in group if one.content.get("seed") is not None]
        if len(set(seeds)) < len(seeds):
            titles.append(title)
    return (
        f"The same seed appears more than once under {listing(titles)}: standard errors are too small."
        if titles
        else None
    )


def _setting(one: Evaluation, name: str) -> Any:
    return (one.content.get("settings") or {}).get(name)
