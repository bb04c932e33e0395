"""Seeded splits that all loaders share.

``split_rows(count, validation=0, test=0, seed=0, classes=None) -> (train, validation, test)``: row numbers as int64
tensors; ``validation`` and ``test`` are counts (int) or fractions (float). ``seed=None`` keeps the order: the training
rows come first, then validation, and the test rows are the last. ``classes`` stratifies.
``split_examples(inputs, targets, rows)`` turns them into ``Examples``, and None where a part is empty.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from slimbayes._checks import check_count, check_number
from slimbayes.data.dataset import Examples

__all__ = ["Split", "split_examples", "split_rows"]


class Split(NamedTuple):
    """Row numbers of the three parts; those of validation and test may be empty."""

    train: Tensor
    validation: Tensor
    test: Tensor


def split_rows(
    count: int,
    validation: int | float = 0,
    test: int | float = 0,
    seed: int | None = 0,
    classes: Tensor | None = None,
) -> Split:
    """Split the rows 0 to ``count - 1`` at random.

    Args:
        count: Number of rows.
        validation: How many rows to choose on: a count, or as a float a fraction of all rows. 0 for none.
        test: How many rows to test on, in the same way.
        seed: Of the shuffling. None does not shuffle: the last rows are for the test, those before for validation.
        classes: ``(count,)``, each row's class number. If given, each part has each class in the same proportion,
            as nearly as whole rows allow; needs a seed.

    Raises:
        ValueError: No row is left to train on.

    Example:
        >>> split_rows(10, validation=2, test=0.3, seed=None)
        Split(train=tensor([0, 1, 2, 3, 4]), validation=tensor([5, 6]), test=tensor([7, 8, 9]))
    """
    held_out = [_count_of("validation", validation, count), _count_of("test", test, count)]
    left = count - sum(held_out)
    if left < 1:
        raise ValueError(
            f"Expected arguments `validation` and `test` to leave rows to train on, but got {validation!r} and "
            f"{test!r} of {count} rows. Make them smaller."
        )
    order = torch.arange(count)
    if seed is not None:
        check_count("seed", seed, minimum=0)
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    if classes is not None:
        if seed is None:
            raise ValueError("Expected argument `seed` to be an integer with `classes`, but got None.")
        order = order[_interleaved(classes[order])]
    return Split(*order.split([left, *held_out]))


def split_examples(
    inputs: tuple[Tensor, ...], targets: Tensor, rows: Split
) -> tuple[Examples, Examples | None, Examples | None]:
    """Return the examples of each part; None for validation or test without rows.

    Example:
        >>> rows = split_rows(3, test=1, seed=None)
        >>> train, validation, test = split_examples((torch.zeros(3, 2),), torch.tensor([0, 1, 2]), rows)
        >>> train.targets, validation, test.targets
        (tensor([0, 1]), None, tensor([2]))
    """
    train, *others = (Examples(tuple(x[part] for x in inputs), targets[part]) for part in rows)
    validation, test = (part if len(part) else None for part in others)
    return train, validation, test


def _count_of(argument: str, value: int | float, count: int) -> int:
    """Return the number of rows that a count or a fraction stands for; a fraction above 0 is at least one row."""
    if isinstance(value, float):
        remedy = "A float is a fraction of the rows; give an integer for a number of rows."
        check_number(argument, value, low=0.0, high=1.0, or_low=True, remedy=remedy)
        return max(round(value * count), int(value > 0))
    check_count(argument, value, minimum=0)
    return value


def _interleaved(classes: Tensor) -> Tensor:
    """Return an order in which any stretch of rows has the classes in their proportions.

    The i-th of a class's n rows goes to position (i + 1/2) / n; so a class of one row is in the middle, and trains.
    """
    position = torch.empty(len(classes), dtype=torch.float64)
    for one in classes.unique():
        rows = (classes == one).nonzero().squeeze(1)
        position[rows] = (torch.arange(len(rows), dtype=torch.float64) + 0.5) / len(rows)
    return position.argsort(stable=True)
