"""How much a figure varies from seed to seed."""

import math
import statistics
from collections.abc import Sequence

__all__ = ["standard_error"]


def standard_error(values: Sequence[float]) -> float | None:
    r"""Return the standard error of the mean, :math:`s / \sqrt n` with the sample standard deviation :math:`s`.

    Args:
        values: One for each seed.

    Returns:
        None with one value, which says nothing about the spread.

    Example:
        >>> standard_error([1.0, 2.0, 3.0])
        0.5773502691896258
    """
    values = [float(value) for value in values]
    if not values:
        raise ValueError("Expected argument `values` to hold at least one number, but got none.")
    if not all(math.isfinite(value) for value in values):
        raise ValueError(f"Expected argument `values` to hold finite numbers, but got {values}. Leave out failed runs.")
    return None if len(values) < 2 else statistics.stdev(values) / math.sqrt(len(values))
