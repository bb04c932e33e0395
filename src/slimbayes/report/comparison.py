"""Evaluations side by side: those of one title are the seeds of one method."""

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from pathlib import PurePath
from typing import Any, NamedTuple

from slimbayes.evaluation.record import Evaluation
from slimbayes.metrics.spread import standard_error

__all__ = ["COLUMNS", "Column", "Comparison", "Figure"]


class Column(NamedTuple):
    """A score that tables show.

    Attributes:
        key: Its name in the file; a leading ``c`` means the mean over corruptions.
        title: What tables call it.
        higher: Whether more is better; None if neither is.
        percent: Whether to show it in per cent.
        help: One sentence.
    """

    key: str
    title: str
    higher: bool | None
    percent: bool = False
    help: str = ""


class Figure(NamedTuple):
    """A mean over seeds.

    Attributes:
        mean: The mean.
        error: Its standard error, or None with one seed.
        seeds: How many.
    """

    mean: float
    error: float | None
    seeds: int


MISSING = object()
#: Options that distinguish data of one kind: tables, arrays, folders of images and UCI sets.
WHOSE = ("path", "set", "target")
#: What evaluations must have in common.
ALIKE: dict[str, Callable[[dict[str, Any]], object]] = {
    "data sets": lambda content: content["data"],
    "tasks": lambda content: [content["task"][key] for key in ("likelihood", "outputs")],
    "classes": lambda content: content["task"].get("classes"),
    "numbers of examples": lambda content: content["settings"].get("limit"),
    "corruptions": lambda content: content["settings"].get("corruptions"),
    "types of corruption": lambda content: content["settings"].get("types"),
    "severities": lambda content: content["settings"].get("severities"),
}

#: In the order of the papers' tables, then what else there is.
COLUMNS = (
    Column("nll", "NLL", False, help="Mean negative log-likelihood of the mixture over draws, in nats."),
    Column("accuracy", "Accuracy", True, True, "Share of examples whose most probable class is the target."),
    Column("ece", "ECE", False, help="Expected calibration error, 15 bins of equal width, as a fraction."),
    Column("rmse", "RMSE", False, help="Root of the mean squared error, in the target's units."),
    Column("crps", "CRPS", False, help="Continuous ranked probability score, in the target's units."),
    Column("coverage", "Coverage", None, True, "Share of targets inside the central 90% interval; 90% is right."),
    Column("width", "Width", None, help="Mean width of the central 90% interval; read it beside the coverage."),
    Column("cnll", "cNLL", False, help="NLL, mean over corruption types and severities."),
    Column("caccuracy", "cA", True, True, "Accuracy, mean over corruption types and severities."),
    Column("cece", "cECE", False, help="ECE, mean over corruption types and severities."),
    Column("crmse", "cRMSE", False, help="RMSE, mean over shifts and severities."),
    Column("mce", "mCE", False, True, "Mean corruption error relative to AlexNet's."),
    Column("brier", "Brier", False, help="Mean squared distance of the probabilities from the truth, 0 to 2."),
    Column("auc_pr", "AUC-PR", True, help="Area under the precision-recall curve."),
    Column("auc_roc", "AUC-ROC", True, help="Area under the receiver operating characteristic."),
    Column("aurc", "AURC", False, help="Area under the risk-coverage curve: error when the least sure are refused."),
    Column("disagreement", "Disagreement", None, help="Share of examples on which two members differ."),
)


class Comparison:
    """Evaluations by title, in the order given.

    Evaluations of one title and configuration are the seeds of one method. Where a title stands for several
    configurations, what differs is added to it.

    Args:
        evaluations: At least one; all of the same data set, and evaluated in the same way.
    """

    def __init__(self, evaluations: Sequence[Evaluation]) -> None:
        if not evaluations:
            raise ValueError("Expected at least one evaluation to report on, but got none.")
        for one in evaluations:
            if not one.samples or not one.result()["clean"]:
                raise ValueError(
                    f"Expected evaluations with results, but that of {_named(one)} has none yet. "
                    f"Go on with it: slimbayes evaluate {_named(one)}"
                )
        contents = [one.content for one in evaluations]
        for what, comparable in ALIKE.items():
            _check_alike(what, map(comparable, contents))
        for key in WHOSE:  # an option that is left out has its default, which is not known here
            given = [value for value in (whose(content, key) for content in contents) if value is not None]
            _check_alike(f"data sets, by {key},", given)
        weights = [one.content.get("weights") for one in evaluations]
        for number, digest in enumerate(weights):
            if digest and digest in weights[:number]:
                first = evaluations[weights.index(digest)]
                raise ValueError(
                    f"Expected each run once, but {_named(first)} and {_named(evaluations[number])} have the same "
                    "weights. Leave one out."
                )
        self.evaluations = list(evaluations)

    @cached_property
    def groups(self) -> dict[str, list[Evaluation]]:
        """Evaluations by title, and by configuration where a title stands for several."""
        kinds: dict[str, list[tuple[dict[str, object], list[Evaluation]]]] = {}
        for one in self.evaluations:
            config, known = _flat(one.content.get("config") or {}), kinds.setdefault(one.title, [])
            for other, group in known:
                if other == config:
                    group.append(one)
                    break
            else:
                known.append((config, [one]))
        named: list[tuple[str, list[Evaluation]]] = []
        for title, known in kinds.items():
            words = _differences([config for config, _ in known])
            named += [
                (f"{title} ({own})" if own else title, group) for own, (_, group) in zip(words, known, strict=True)
            ]
        order = [id(one) for one in self.evaluations]
        named.sort(key=lambda one: order.index(id(one[1][0])))
        groups: dict[str, list[Evaluation]] = {}
        for name, group in named:
            groups[_unused(name, groups)] = group
        return groups

    def titled(self) -> list[tuple[str, Evaluation]]:
        """Return each evaluation with its group's title."""
        return [(title, one) for title, group in self.groups.items() for one in group]

    @property
    def titles(self) -> list[str]:
        """The titles, in the order of their first evaluations."""
        return list(self.groups)

    @property
    def regression(self) -> bool:
        """Whether the targets are real values."""
        return self.evaluations[0].regression

    @cached_property
    def columns(self) -> list[Column]:
        """The scores that at least one evaluation has."""
        return [column for column in COLUMNS if any(self.figure(title, column.key) for title in self.titles)]

    def figure(self, title: str, key: str, samples: int | None = None) -> Figure | None:
        """Return the mean over seeds of one score; None if some seed lacks it."""
        group = self.groups[title]
        values = [score(one, key, samples) for one in group if samples is None or samples in one.samples]
        numbers = [value for value in values if value is not None]
        if not numbers or len(numbers) < len(group):
            return None
        return Figure(sum(numbers) / len(numbers), standard_error(numbers), len(numbers))

    def best(self, column: Column) -> set[str]:
        """Return the titles with the best mean, all of them on a tie; none if there is nothing to compare."""
        found = {title: self.figure(title, column.key) for title in self.titles}
        means = {title: figure.mean for title, figure in found.items() if figure is not None}
        if column.higher is None or len(means) < 2:
            return set()
        best = (max if column.higher else min)(means.values())
        return {title for title, mean in means.items() if mean == best}


def score(one: Evaluation, key: str, samples: int | None = None) -> float | None:
    """Return a score by its column's key, or None if it is not there."""
    clean = one.clean(samples)
    if key in clean:
        return clean[key]
    summary = one.result(samples).get("summary") or {}
    if key == "mce":
        return summary.get("mce")
    return (summary.get("mean") or {}).get(key[1:]) if key.startswith("c") else None


def _flat(content: object, prefix: str = "") -> dict[str, object]:
    if not isinstance(content, dict):
        return {prefix[:-1]: content}
    return {key: value for name, inner in content.items() for key, value in _flat(inner, f"{prefix}{name}.").items()}


def _check_alike(what: str, values: Iterable[object]) -> None:
    kinds = {json.dumps(value, sort_keys=True) for value in values}
    if len(kinds) > 1:
        listed = "; ".join(kind if len(kind) <= 80 else f"{kind[:77]}..." for kind in sorted(kinds))
        raise ValueError(
            f"Expected runs that can be compared, but their {what} differ: {listed}. "
            "Report on them apart, or evaluate them alike."
        )


def _differences(configs: list[dict[str, object]]) -> list[str]:
    """Return for each configuration the options in which the configurations differ.

    Example:
        >>> _differences([{"method.members": 4, "epochs": 9}, {"epochs": 9}])
        ['members=4', 'members=default']
    """
    keys = dict.fromkeys(key for config in configs for key in config)
    differing = [key for key in keys if any(one.get(key, MISSING) != configs[0].get(key, MISSING) for one in configs)]
    last = [key.rpartition(".")[2] for key in differing]
    names = [end if last.count(end) == 1 else key for key, end in zip(differing, last, strict=True)]
    return [
        ", ".join(f"{name}={_text(config.get(key, MISSING))}" for key, name in zip(differing, names, strict=True))
        for config in configs
    ]


def _text(value: object) -> str:
    return "default" if value is MISSING else value if isinstance(value, str) else json.dumps(value)


def _unused(name: str, taken: Collection[str]) -> str:
    """Return a name that is not taken: different values may look the same, such as 4 and "4"."""
    numbered = (name if number == 1 else f"{name} #{number}" for number in itertools.count(1))
    return next(one for one in numbered if one not in taken)


def whose(content: dict[str, Any], key: str) -> str | None:
    """Return a data option; of a path only the last part, since the rest depends on where the run was started."""
    value = ((content.get("config") or {}).get("data") or {}).get(key)
    return value if value is None or key != "path" else PurePath(str(value)).name


def _named(one: Evaluation) -> str:
    return str(one.content["name"] if one.folder is None else one.folder)
