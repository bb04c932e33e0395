"""How much a figure depends on which examples happened to be in the test set."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from slimbayes._checks import check_count, check_number
from slimbayes.metrics._inputs import UndefinedScoreError, as_double

__all__ = ["bootstrap_interval"]

#: Numbers that are in memory at once.
BLOCK = 2**20


def bootstrap_interval(
    metric: Callable[..., Tensor] | None,
    *arrays: Tensor,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    **options: Any,
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a metric over test examples (Efron 1979).

    The examples are drawn anew with replacement ``resamples`` times; resamples for which the metric is not defined,
    such as the AUC of one class, are left out.

    Args:
        metric: A function of ``arrays``. One with an argument ``reduction`` is a mean over examples and is
            evaluated only once. None: the mean of one array.
        arrays: One entry for each example on the first axis (anywhere, for a metric with ``reduction``).
        level: Share of the resamples inside the interval.
        resamples: How many.
        seed: Of the resamples; the global generators are not touched.
        options: Further arguments of the metric.

    Returns:
        Lower and upper bound, each the value of a resample.

    Example:
        >>> from slimbayes.metrics import accuracy
        >>> probs, targets = torch.tensor([[0.9, 0.1]]).repeat(100, 1), torch.arange(100) % 2
        >>> low, high = bootstrap_interval(accuracy, probs, targets)
        >>> 0.35 < low < 0.45, 0.55 < high < 0.65
        (True, True)
    """
    check_number("level", level, 0.0, 1.0, "Give the share inside, such as 0.95.")
    check_count("resamples", resamples, 2)
    generator = torch.Generator().manual_seed(seed)
    if metric is None or "reduction" in inspect.signature(metric).parameters:
        (each,) = arrays if metric is None else (metric(*arrays, reduction="none", **options),)
        values = _means(as_double("arrays", each).cpu(), resamples, generator)
    else:
        values = _values(lambda *drawn: metric(*drawn, **options), arrays, resamples, generator)
    tail = (1 - level) / 2
    # A bound is a resample's value, as interpolation between infinite ones is not defined.
    low = values.quantile(tail, interpolation="lower").item()
    return low, values.quantile(1 - tail, interpolation="higher").item()


def _means(values: Tensor, resamples: int, generator: torch.Generator) -> Tensor:
    if values.dim() != 1:
        raise ValueError(f"Expected argument `arrays` to be one of shape (batch,), but got {tuple(values.shape)}.")
    examples = len(values)
    rows = max(1, BLOCK // examples)
    means = [
        values[torch.randint(examples, (min(rows, resamples - start), examples), generator=generator)].mean(1)
        for start in range(0, resamples, rows)
    ]
    return torch.cat(means)


def _values(
    metric: Callable[..., Tensor], arrays: tuple[Tensor, ...], resamples: int, generator: torch.Generator
) -> Tensor:
    lengths = {len(array) for array in arrays}
    if len(lengths) != 1 or lengths == {0}:
        raise ValueError(
            f"Expected arguments `arrays` to have one entry for each example on their first axis, but got shapes "
            f"{', '.join(str(tuple(array.shape)) for array in arrays)}. Move the axis of the examples to the front."
        )
    examples = lengths.pop()
    values: list[float] = []
    undefined = ""
    for _ in range(resamples):
        drawn = torch.randint(examples, (examples,), generator=generator)
        try:
            value = float(metric(*(array[drawn.to(array.device)] for array in arrays)))
        except UndefinedScoreError as error:
            undefined = str(error)
            continue
        if value == value:  # a NaN is undefined too
            values.append(value)
    if not values:
        raise UndefinedScoreError(f"The metric is not defined for any resample. {undefined}")
    return torch.tensor(values, dtype=torch.float64)
