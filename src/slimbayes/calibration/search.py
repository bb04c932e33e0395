"""The lowest point of a function of one number."""

import math
from collections.abc import Callable

import torch

__all__ = ["minimise"]


def minimise(f: Callable[[float], float], low: float, high: float, points: int = 25, tolerance: float = 1e-8) -> float:
    """Return where ``f`` is lowest: the best point of a grid, then golden-section search between its neighbours.

    The grid guards against a second valley, and needs no gradient; on a plateau the lower end is taken.

    Example:
        >>> round(minimise(lambda x: (x - 0.3) ** 2, -1.0, 1.0), 6)
        0.3
    """
    grid = torch.linspace(low, high, points, dtype=torch.float64).tolist()
    best = min(range(points), key=[f(x) for x in grid].__getitem__)
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, points - 1)]
    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = f(left), f(right)
    while high - low > tolerance:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = f(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = f(right)
    return (low + high) / 2
