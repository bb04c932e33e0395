"""Means over examples of equal rank."""

import torch
from torch import Tensor


def tie_means(keys: Tensor, values: Tensor) -> Tensor:
    """Return each example's mean value over all examples with the same key: what a random order gives on average.

    Example:
        >>> tie_means(torch.tensor([1.0, 2.0, 1.0]), torch.tensor([0.0, 5.0, 1.0])).tolist()
        [0.5, 5.0, 0.5]
    """
    _, group, count = keys.unique(return_inverse=True, return_counts=True)
    sums = torch.zeros(len(count), dtype=values.dtype, device=values.device).index_add(0, group, values)
    return (sums / count)[group]
