"""Columns of numbers brought to mean 0 and standard deviation 1, by the statistics of the training rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slimbayes.data.preparation import Preparation, Raw, read_arrays, register_preparation


def mean_and_std(values: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and the standard deviation of each column, 1 for a constant one.

    Shape:
        - ``values``: ``(rows, *)``. Results: ``(*)``.

    Example:
        >>> mean_and_std(np.array([[0.0, 0.1], [2.0, 0.1]]))
        (array([1. , 0.1]), array([1., 1.]))
    """
    values = np.asarray(values, np.float64)
    constant = values.min(0) == values.max(0)  # not std == 0: that of a constant 0.1 is rounding noise
    return np.where(constant, values[0], values.mean(0)), np.where(constant, 1.0, values.std(0))


def standardised_targets(targets: NDArray[Any], train: Tensor) -> tuple[Tensor, float, float]:
    """Return (targets - mean) / std as float32, and both numbers, which are those of the training rows.

    Example:
        >>> standardised_targets(np.array([1.0, 3.0, 6.0]), torch.tensor([0, 1]))
        (tensor([-1.,  1.,  4.]), 2.0, 1.0)
    """
    mean, std = mean_and_std(targets[train.numpy()].reshape(-1))
    return torch.from_numpy(((targets - mean) / std).astype(np.float32)), float(mean), float(std)


@register_preparation
class Standardised(Preparation):
    """Subtracts a mean from each column and divides by a standard deviation; reads NumPy's .npy and .npz files.

    Args:
        mean: Of each column.
        std: Of each column, above 0.

    Shape:
        - Raw: ``(batch, columns)``, best float64, as a large mean may be subtracted. Result: the same, float32.

    Example:
        >>> Standardised(mean=[1.0, 0.0], std=[2.0, 1.0])(torch.tensor([[5.0, 5.0]]))
        (tensor([[2., 5.]]),)
    """

    kind = "standardised"

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean, self.std = list(mean), list(std)
        self._mean, self._std = (torch.tensor(one, dtype=torch.float64) for one in (self.mean, self.std))

    @classmethod
    def by(cls, rows: NDArray[Any]) -> "Standardised":
        """Return the one that standardises these rows."""
        mean, std = mean_and_std(rows)
        return cls(mean.tolist(), std.tolist())

    def __call__(self, *raw: Tensor) -> tuple[Tensor, ...]:
        """Return standardised columns."""
        (x,) = raw
        return (((x.double() - self._mean) / self._std).float(),)

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "mean": self.mean, "std": self.std}

    def read(self, path: Path) -> Raw:
        """Read an .npy or .npz file of rows with the columns of training, not yet standardised."""
        raw = read_arrays(path)
        if len(raw.inputs) != 1 or raw.inputs[0].shape[1:] != self._mean.shape:
            shapes = ", ".join(str(tuple(x.shape)) for x in raw.inputs)
            raise ValueError(f"{path} should hold one array of shape (rows, {len(self.mean)}), but holds {shapes}.")
        return raw
