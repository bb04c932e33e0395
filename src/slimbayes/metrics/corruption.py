"""Scores over corrupted copies of a test set, one value for each type and severity."""

import math
import statistics
from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

__all__ = [
    "ALEXNET_ERRORS",
    "SeveritySpread",
    "by_severity",
    "corruption_mean",
    "corruption_median",
    "mean_corruption_error",
]

Severity = TypeVar("Severity", bound=Hashable)

#: AlexNet's error on each type of ImageNet-C, the mean over severities 1 to 5 (Hendrycks & Dietterich 2019).
ALEXNET_ERRORS: Mapping[str, float] = {
    "gaussian_noise": 0.886428,
    "shot_noise": 0.894468,
    "impulse_noise": 0.922640,
    "defocus_blur": 0.819880,
    "glass_blur": 0.826268,
    "motion_blur": 0.785948,
    "zoom_blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic_transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg_compression": 0.606500,
}


class SeveritySpread(NamedTuple):
    """A score at one severity, over types.

    Attributes:
        mean: The mean.
        median: The median.
        std: The sample standard deviation; None with one type, infinite if a score is.
    """

    mean: float
    median: float
    std: float | None


def corruption_mean(values: Mapping[str, Mapping[Severity, float]]) -> float:
    """Return the mean over types and severities, each cell counting once: cNLL, cA, cECE (section 4).

    Args:
        values: A score by type and severity.

    Example:
        >>> corruption_mean({"fog": {1: 0.1, 2: 0.3}, "snow": {1: 0.2, 2: 0.6}})
        0.3
    """
    return statistics.fmean(_cells(values))


def corruption_median(values: Mapping[str, Mapping[Severity, float]]) -> float:
    """Return the median over types and severities.

    Args:
        values: A score by type and severity.

    Example:
        >>> corruption_median({"fog": {1: 0.1, 2: 0.3}, "snow": {1: 0.2, 2: 0.6}})
        0.25
    """
    return statistics.median(_cells(values))


def by_severity(values: Mapping[str, Mapping[Severity, float]]) -> dict[Severity, SeveritySpread]:
    """Return the spread over types at each severity.

    Args:
        values: A score by type and severity; a type may lack some severities.

    Example:
        >>> by_severity({"fog": {1: 0.0, 2: 0.3}, "snow": {1: 1.0}})[1].mean
        0.5
    """
    _cells(values)
    columns: dict[Severity, list[float]] = {}
    for row in values.values():
        for severity, value in row.items():
            columns.setdefault(severity, []).append(float(value))
    return {
        severity: SeveritySpread(
            statistics.fmean(column),
            statistics.median(column),
            _std(column),
        )
        for severity, column in columns.items()
    }


def mean_corruption_error(
    errors: Mapping[str, Mapping[Severity, float]], baseline: Mapping[str, float] = ALEXNET_ERRORS
) -> float:
    r"""Return the mCE, :math:`\frac1C \sum_c \sum_s E_{s,c} / \sum_s E^{AlexNet}_{s,c}`, as a fraction.

    (Hendrycks & Dietterich 2019, section 4.) AlexNet's errors are those on ImageNet-C: of other data, the figure
    compares nothing but models with each other.

    Args:
        errors: One minus the accuracy, by type and severity: all types of the baseline, severities 1 to 5.
            Other types, such as the four extra ones, are left out.
        baseline: Mean error over severities, by type.

    Example:
        >>> half = {name: dict.fromkeys(range(1, 6), error / 2) for name, error in ALEXNET_ERRORS.items()}
        >>> round(mean_corruption_error(half), 6)
        0.5
    """
    wrong = [error for error in _cells(errors, "errors") if not 0 <= error <= 1]
    if wrong:
        raise ValueError(
            f"Expected argument `errors` to hold fractions from 0 to 1, but got {wrong[0]:g}. Divide per cent by 100."
        )
    lacking = [name for name in baseline if sorted(map(str, errors.get(name, ()))) != list("12345")]
    if lacking:
        raise ValueError(
            f"Expected argument `errors` to hold severities 1 to 5 of each of the {len(baseline)} types, but got not "
            f"all of {', '.join(lacking)}. Evaluate them too, or report corruption_mean."
        )
    return statistics.fmean(statistics.fmean(errors[name].values()) / base for name, base in baseline.items())


def _std(column: list[float]) -> float | None:
    if len(column) < 2:
        return None
    return statistics.stdev(column) if all(map(math.isfinite, column)) else math.inf


def _cells(table: Mapping[str, Mapping[Severity, float]], argument: str = "values") -> list[float]:
    cells = [float(value) for row in table.values() for value in row.values()]
    if not cells:
        raise ValueError(f"Expected argument `{argument}` to hold at least one type and severity, but got none.")
    for name, row in table.items():
        for severity, value in row.items():
            if math.isnan(value):
                raise ValueError(f"Expected argument `{argument}` to have no NaN, but got one at {name}, {severity}.")
    return cells
