"""Scores over all corruptions: means, medians and the mean corruption error."""

import math
from typing import Any

from slimbayes import metrics
from slimbayes.data.dataset import DataSet

__all__ = ["summarise"]


def summarise(corrupted: dict[str, dict[str, Any]], data: DataSet) -> dict[str, Any] | None:
    """Return the summary of a result; None without corruptions.

    Args:
        corrupted: By type and severity, ``{"scores": {...}}``.
        data: The data set; AlexNet's errors are known for ImageNet only.
    """
    if not corrupted:
        return None
    first = next(iter(next(iter(corrupted.values())).values()))["scores"]
    tables = {name: _table(corrupted, name) for name in first}
    whole = {name: table for name, table in tables.items() if table is not None}
    spread: dict[str, dict[str, Any]] = {}
    for name, table in whole.items():
        for severity, one in metrics.by_severity(table).items():
            spread.setdefault(str(severity), {})[name] = one._asdict()
    return {
        "mean": {name: metrics.corruption_mean(table) for name, table in whole.items()},
        "median": {name: metrics.corruption_median(table) for name, table in whole.items()},
        "mce": _mce(whole.get("accuracy"), data),
        "by_severity": spread,
    }


def _table(corrupted: dict[str, dict[str, Any]], name: str) -> dict[str, dict[str, float]] | None:
    """Return one score by type and severity; None if some condition lacks it."""
    table = {
        kind: {severity: one["scores"].get(name) for severity, one in severities.items()}
        for kind, severities in corrupted.items()
    }
    values = [value for severities in table.values() for value in severities.values()]
    return None if any(value is None or not math.isfinite(value) for value in values) else table


def _mce(accuracy: dict[str, dict[str, float]] | None, data: DataSet) -> float | None:
    if accuracy is None or data.name != "imagenet":
        return None
    errors = {
        kind: {int(severity): 1 - value for severity, value in severities.items()}
        for kind, severities in accuracy.items()
        if kind in metrics.ALEXNET_ERRORS
    }
    try:
        return metrics.mean_corruption_error(errors)
    except ValueError:  # some of the 15 types or 5 severities were not asked for
        return None
