"""Evaluations side by side: those of one title are the seeds of one method."""

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from slimbayes.evaluation.record import Evaluation
from slimbayes.metrics.spread import standard_error

__all__ = ["COLUMNS", "Column", "Comparison", "Figure"]


class Column(NamedTuple):
    """A score that tables show.

    Attributes:
        key: Its name in the file; a ``c`` in front means the mean over corruptions.
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
#: What evaluations must have in common.
ALIKE: dict[str, Callable[[dict[str, Any]], object]] = {
    "data sets": lambda content: content["data"],
    "tasks": lambda content: [content["task"][key] for key in ("likelihood", "outputs")],
    "numbers of examples": lambda content: content["settings"].get("limit"),
    "corruptions": lambda content: content["settings"].get("corruptions"),
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
        evaluations: At least one; all of the same data set, and evaluated alike.
    """

    def __init__(self, evaluations: Sequence[Evaluation]) -> None:
        if not evaluations:
            raise ValueError("Expected at least one evaluation to report on, but got none.")
        for what, comparable in ALIKE.items():
            kinds = {json.dumps(comparable(one.content), sort_keys=True) for one in evaluations}
            if len(kinds) > 1:
                raise ValueError(
                    f"Expected runs that can be compared, but their {what} differ: {'; '.join(sorted(kinds))}. "
                    "Report on them apart, or evaluate them alike."
                )
        weights = [one.content.get("weights") for one in evaluations]
        for number, digest in enumerate(weights):
            if digest and digest in weights[:number]:
                first = evaluations[weights.index(digest)]
                raise ValueError(
                    f"Expected each run once, but {first.folder} and {evaluations[number].folder} have the same "
                    "weights. Leave one out."
                )
        self.evaluations = list(evaluations)

    @cached_property
    def groups(self) -> dict[str, list[Evaluation]]:
        """Evaluations by title."""
        configs: dict[str, list[dict[str, object]]] = {}
        for one in self.evaluations:
            config, known = _flat(one.content.get("config") or {}), configs.setdefault(one.title, [])
            if config not in known:
                known.append(config)
        groups: dict[str, list[Evaluation]] = {}
        for one in self.evaluations:
            config, known = _flat(one.content.get("config") or {}), configs[one.title]
            differing = [key for key in config if any(other.get(key, MISSING) != config[key] for other in known)]
            if len(known) > 1:
                differing += [key for other in known for key in other if key not in config and key not in differing]
            words = ", ".join(f"{key.split('.')[-1]}={config.get(key)}" for key in dict.fromkeys(differing))
            groups.setdefault(f"{one.title} ({words})" if words else one.title, []).append(one)
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
