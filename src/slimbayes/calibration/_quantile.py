"""The quantile of split conformal prediction."""

import math
from fractions import Fraction

from torch import Tensor

from slimbayes._checks import check_number


def checked_level(level: float) -> float:
    """Return ``level`` as a number that JSON knows, or raise unless it is a probability."""
    check_number("level", level, 0.0, 1.0, "Give the wanted coverage, such as 0.9.")
    return float(level)


def conformal_quantile(scores: Tensor, level: float, of: str = "") -> float:
    r"""Return the :math:`\lceil (n + 1)\, level \rceil`-th smallest of n scores (Lei et al. 2018).

    A new score is at most as large with a probability from ``level`` to ``level + 1 / (n + 1)``, if all n + 1 are
    exchangeable and no two are equal; with equal ones it is at least ``level``.

    Args:
        scores: ``(n,)``.
        level: The wanted coverage.
        of: Whose scores they are, for the error if they are too few.

    Example:
        >>> import torch
        >>> conformal_quantile(torch.arange(1.0, 10.0), level=0.8)
        8.0
    """
    exact = Fraction(str(float(level)))  # 0.55 * 100 is a little above 55 in floating point
    rank, count = math.ceil((len(scores) + 1) * exact), len(scores)
    if rank > count:
        needed = math.ceil(exact / (1 - exact))
        raise ValueError(
            f"level={level:g} needs at least {needed} calibration examples{of}, but got {count}: with fewer, only the "
            "set of everything is sure to cover. Use more, or a lower level."
        )
    return scores.kthvalue(rank).values.item()
