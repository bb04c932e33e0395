"""Means over seeds of numbers in records, some of which may be missing."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from slimbayes.evaluation.record import Evaluation
from slimbayes.report.comparison import Comparison


class Mean(NamedTuple):
    """A curve averaged over seeds.

    Attributes:
        mean: Means ``(points,)``; NaN where no seed has a number.
        error: Their standard errors ``(points,)``; NaN where fewer than two seeds have one.
        seeds: How many curves there were.
    """

    mean: np.ndarray
    error: np.ndarray
    seeds: int

    @property
    def banded(self) -> bool:
        """Whether there is a standard error to show."""
        return bool(np.isfinite(self.error).any())


def found(comparison: Comparison, get: Callable[[Evaluation], Any]) -> dict[str, list[Any]]:
    """Return what ``get`` finds in the seeds of each title, without the seeds and titles where it finds nothing."""
    groups = {title: [get(one) for one in group] for title, group in comparison.groups.items()}
    groups = {title: [one for one in values if one] for title, values in groups.items()}
    return {title: values for title, values in groups.items() if values}


def means(comparison: Comparison, titles: Iterable[str], key: str) -> dict[str, float | None]:
    """Return the mean over seeds of a score by title, None where a seed lacks it."""
    figures = {title: comparison.figure(title, key) for title in titles}
    return {title: figure.mean if figure else None for title, figure in figures.items()}


def numbers(values: Iterable[float | None]) -> np.ndarray:
    """Return an array with NaN for None.

    Example:
        >>> numbers([1, None])
        array([ 1., nan])
    """
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def mean_over_seeds(curves: Sequence[Iterable[float | None]]) -> Mean:
    """Return the mean of curves point by point, over those that have a number there; short ones end early.

    Example:
        >>> mean = mean_over_seeds([[1.0, 2.0], [3.0, None]])
        >>> mean.mean, mean.error
        (array([2., 2.]), array([ 1., nan]))
    """
    arrays = [numbers(curve) for curve in curves]
    table = np.full((len(arrays), max(map(len, arrays))), np.nan)
    for row, array in zip(table, arrays, strict=True):
        row[: len(array)] = array
    count = np.isfinite(table).sum(0)
    mean = np.nansum(table, 0) / np.where(count, count, np.nan)
    squares = np.nansum((table - mean) ** 2, 0)
    error = np.sqrt(squares / np.where(count > 1, (count - 1) * count, np.nan))
    return Mean(mean, error, len(arrays))


def resampled(at: np.ndarray, where: Iterable[float], values: Iterable[float | None]) -> np.ndarray:
    """Return a curve at other points, straight between those where it has a number.

    Example:
        >>> resampled(np.array([0.5, 1.0]), [0, 1, 2], [3.0, None, 5.0])
        array([3.5, 4. ])
    """
    points, curve = numbers(where), numbers(values)
    known = np.isfinite(curve)
    return np.interp(at, points[known], curve[known]) if known.any() else np.full(len(at), np.nan)
