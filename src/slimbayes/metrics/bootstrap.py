"""How much a figure depends on which examples happened to be in the test set."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from slimbayes._checks import check_choice, check_count, check_number
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
    method: str = "percentile",
    **options: Any,
) -> tuple[float, float]:
    r"""Return the bootstrap interval of a metric over test examples (Efron 1979).

    The examples are drawn anew with replacement ``resamples`` times; resamples for which the metric is not defined,
    such as the AUC of one class, are left out.

    Resamples of a calibration error, a sum of absolute values, are larger than the error itself just as this is larger
    than that of endless examples. The percentiles of a small one are all too high, and may leave out the error itself;
    the basic interval :math:`[2 \hat\theta - q_{high}, 2 \hat\theta - q_{low}]` (Davison & Hinkley 1997, 5.2) takes the
    bias off, twice, and may begin below 0.

    Args:
        metric: A function of ``arrays``. One with an argument ``reduction`` is a mean over examples and is
            evaluated only once. None: the mean of one array.
        arrays: One entry for each example on the first axis (anywhere, for a metric with ``reduction``).
        level: Share of the resamples inside the interval.
        resamples: How many.
        seed: Of the resamples; the global generators are not touched.
        method: ``"percentile"``, or ``"basic"`` for calibration errors.
        options: Further arguments of the metric.

    Returns:
        Lower and upper bound.

    Example:
        >>> from slimbayes.metrics import accuracy
        >>> probs, targets = torch.tensor([[0.9, 0.1]]).repeat(100, 1), torch.arange(100) % 2
        >>> low, high = bootstrap_interval(accuracy, probs, targets)
        >>> 0.35 < low < 0.45, 0.55 < high < 0.65
        (True, True)
    """
    check_number("level", level, 0.0, 1.0, "Give the share inside, such as 0.95.")
    check_count("resamples", resamples, 2)
    check_choice("method", method, ("percentile", "basic"))
    generator = torch.Generator().manual_seed(seed)
    if metric is None or "reduction" in inspect.signature(metric).parameters:
        if metric is None and len(arrays) != 1:
            raise ValueError(f"Expected one of `arrays` without a `metric`, but got {len(arrays)}. Name the metric.")
        each = arrays[0] if metric is None else metric(*arrays, reduction="none", **options)
        each = as_double("arrays", each).detach().cpu()
        values, whole = _means(each, resamples, generator), each.mean()
    else:
        arrays = tuple(torch.as_tensor(array).detach() for array in arrays)
        values = _values(lambda *drawn: metric(*drawn, **options), arrays, resamples, generator)
        whole = metric(*arrays, **options)
    tail = (1 - level) / 2
    # A bound is a resample's value, as interpolation between infinite ones is not defined.
    low = values.quantile(tail, interpolation="lower").item()
    high = values.quantile(1 - tail, interpolation="higher").item()
    if method == "percentile":
        return low, high
    value = float(whole)
    if not math.isfinite(value) or not math.isfinite(high - low):
        raise UndefinedScoreError("A metric with infinite values has no basic interval. Pass method='percentile'.")
    return 2 * value - high, 2 * value - low


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
            score = metric(*(array[drawn.to(array.device)] for array in arrays))
        except UndefinedScoreError as error:
            undefined = str(error)
            continue
        if isinstance(score, tuple) or torch.as_tensor(score).numel() != 1:
            raise ValueError("Expected argument `metric` to return one number, not several. Resample one of them.")
        if score == score:  # a NaN is undefined too
            values.append(float(score))
    if not values:
        raise UndefinedScoreError(f"The metric is not defined for any resample. {undefined}")
    return torch.tensor(values, dtype=torch.float64)
