"""How well prediction sets do."""

import torch
from torch import Tensor


def coverage(sets: Tensor | tuple[Tensor, Tensor], targets: Tensor, batch_dim: int = 0) -> Tensor:
    """Return the share of examples whose set or interval holds the target.

    Args:
        sets: ``(batch, classes)`` of booleans, or the two bounds of intervals, ``(batch, *)`` each; an example with
            several intervals is covered if all hold.
        targets: ``(batch,)`` of classes, or ``(batch, *)``.
        batch_dim: Axis of the examples in intervals and their targets, where it is not the first.

    Example:
        >>> coverage(torch.tensor([[True, False], [True, True]]), torch.tensor([1, 1]))
        tensor(0.5000)
        >>> coverage((torch.zeros(4), torch.ones(4)), torch.tensor([0.5, 2.0, 1.0, -1.0]))
        tensor(0.5000)
    """
    if isinstance(sets, Tensor):
        if sets.dtype != torch.bool or sets.dim() != 2 or targets.numel() != len(sets):
            raise ValueError(
                f"Expected argument `sets` of shape (batch, classes), booleans, and `targets` of shape (batch,), but "
                f"got {sets.dtype} of shape {tuple(sets.shape)} and {tuple(targets.shape)}."
            )
        return sets.gather(1, targets.reshape(-1, 1).long()).float().mean()
    low, high = sets
    if low.shape == (*targets.shape, 1):
        targets = targets.unsqueeze(-1)
    if low.shape != targets.shape:
        raise ValueError(
            f"Expected argument `targets` to have the shape {tuple(low.shape)} of the intervals, but got "
            f"{tuple(targets.shape)}. Reshape them."
        )
    inside = ((low <= targets) & (targets <= high)).movedim(batch_dim, 0)
    return inside.reshape(len(inside), -1).all(1).float().mean()


def set_size(sets: Tensor) -> Tensor:
    """Return the mean number of classes in the sets.

    Example:
        >>> set_size(torch.tensor([[True, False], [True, True]]))
        tensor(1.5000)
    """
    return sets.sum(1).float().mean()
