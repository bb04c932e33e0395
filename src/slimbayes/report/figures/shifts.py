"""The scores under shift that figures read: by type and severity, averaged over seeds."""

from typing import NamedTuple

import numpy as np

from slimbayes.evaluation.record import Evaluation
from slimbayes.report.comparison import Comparison

__all__ = ["Score", "scores", "shifted", "types"]


class Score(NamedTuple):
    """A score that figures under shift show.

    Attributes:
        key: Its name in the file.
        title: What axes call it.
        higher: Whether more is better.
    """

    key: str
    title: str
    higher: bool


def scores(comparison: Comparison) -> tuple[Score, ...]:
    """Return the three scores of the papers' figures, or their like for real targets."""
    if comparison.regression:
        return Score("nll", "NLL", False), Score("rmse", "RMSE", False), Score("crps", "CRPS", False)
    return Score("nll", "NLL", False), Score("accuracy", "Accuracy", True), Score("ece", "ECE", False)


def shifted(comparison: Comparison, key: str) -> dict[str, dict[int, np.ndarray]]:
    """Return, for each title and severity, a score of each type ``(types,)``, each the mean over seeds.

    Titles without corrupted results are left out.
    """
    result = {}
    for title, group in comparison.groups.items():
        cells: dict[tuple[int, str], list[float]] = {}
        for one in group:
            for name, severity, found in one.corrupted():
                if (value := found.get(key)) is not None:
                    cells.setdefault((severity, name), []).append(value)
        if cells:
            severities = sorted({severity for severity, _ in cells})
            result[title] = {
                severity: np.array([np.mean(values) for (at, _), values in cells.items() if at == severity])
                for severity in severities
            }
    return result


def types(comparison: Comparison) -> int:
    """Return the largest number of types that an evaluation has."""
    return max(map(_types, comparison.evaluations))


def _types(one: Evaluation) -> int:
    return len(one.result()["corrupted"])
