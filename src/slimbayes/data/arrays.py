"""Any data as NumPy arrays: x_train, y_train and so on in an .npz file."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slimbayes._checks import check_choice
from slimbayes.data._numpy_files import as_tensor, load_numpy
from slimbayes.data._standardise import mean_and_std
from slimbayes.data.dataset import TASKS, DataSet, Examples, Task
from slimbayes.data.folders import find_file
from slimbayes.data.splits import split_examples, split_rows

__all__ = ["load_arrays"]

_PARTS = ("train", "validation", "test")
_NAMES = [f"{letter}_{part}" for part in _PARTS for letter in "xy"]


def load_arrays(
    folder: Path, *, path: str, task: str | None = None, validation: int | float = 0, seed: int = 0
) -> DataSet:
    """Load the arrays of an .npz file; never unpickles.

    Inputs reach the network as they are, as float32 or int64: scale them before they are stored. Whole numbers are
    tokens, of a vocabulary up to the highest. Real targets are standardised by the training ones.

    Args:
        folder: Where a relative path may start, besides the working folder.
        path: The file. ``x_train`` and ``y_train`` are needed; ``x_validation``, ``y_validation``, ``x_test`` and
            ``y_test`` may follow. A network of several inputs takes ``x_train0``, ``x_train1`` and so on.
        task: ``"categorical"``: targets are class numbers from 0. ``"bernoulli"``: 0 or 1, ``(n,)`` or
            ``(n, labels)``. ``"gaussian"``: real, ``(n,)`` or ``(n, outputs)``. ``"poisson"``: counts, likewise. None:
            categorical for whole numbers and booleans, otherwise gaussian.
        validation: If the file has no ``y_validation``: the count, or fraction, of the training rows to choose on.
        seed: Of choosing those.

    Raises:
        MissingData: There is no such file.
        ValueError: An array is missing, misnamed, of objects or text, not finite, or of another length or shape.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(Path(folder) / "my.npz", x_train=np.zeros((4, 3)), y_train=np.array([0, 2, 1, 0]))
        ...     data = load_arrays(Path(folder), path="my.npz")
        >>> data.task.likelihood, data.task.outputs, data.task.input_shape
        ('categorical', 3, (3,))
    """
    file = find_file(folder, path)
    arrays = _load(file)
    train, held_out, test = (_examples(file, arrays, part) for part in _PARTS)
    if train is None:
        raise ValueError(f"{file} should hold x_train and y_train, but holds {', '.join(arrays) or 'nothing'}.")
    for other in (held_out, test):
        _check_alike(file, train, other)
    if validation and held_out is not None:
        raise ValueError(f"Expected argument `validation` to be 0 as {file} has a y_validation, but got {validation}.")
    if validation:
        train, held_out, _ = split_examples(train.inputs, train.targets, split_rows(len(train), validation, seed=seed))
    described = _task(file, task, [part for part in (train, held_out, test) if part is not None])
    held_out, test = (None if part is None else _with_task(part, described) for part in (held_out, test))
    return DataSet("arrays", _with_task(train, described), held_out, test, described)


def _load(file: Path) -> dict[str, NDArray[Any]]:
    arrays = load_numpy(file)
    for name in arrays:
        check_choice(f"array of {file}", re.sub(r"^(x_[a-z]+)\d+$", r"\1", name), _NAMES)
    return arrays


def _examples(file: Path, arrays: dict[str, NDArray[Any]], part: str) -> Examples | None:
    found, target = {name for name in arrays if name.startswith(f"x_{part}")}, f"y_{part}"
    if not found and target not in arrays:
        return None
    names = [f"x_{part}"] if f"x_{part}" in found else [f"x_{part}{index}" for index in range(len(found))]
    if not found or found != set(names) or target not in arrays:
        raise ValueError(
            f"{file} should hold {target}, and x_{part} or else x_{part}0, x_{part}1 and so on without a gap, but "
            f"holds {', '.join(arrays)}."
        )
    inputs = tuple(_tensor(file, name, arrays[name]) for name in names)
    targets = _tensor(file, target, arrays[target])
    for name, x in zip(names, inputs, strict=True):
        if len(x) != len(targets):
            raise ValueError(f"{file} holds {len(x)} rows of {name}, but {len(targets)} of {target}.")
    column = targets.dim() == 2 and targets.shape[1] == 1
    return Examples(inputs, targets.squeeze(1) if column else targets)


def _tensor(file: Path, name: str, array: NDArray[Any]) -> Tensor:
    """Return float32 or int64 for inputs; float64 or int64 for targets, which are standardised yet."""
    tensor = as_tensor(file, name, array)
    if name[0] == "y":
        return torch.from_numpy(array.astype(np.float64 if array.dtype.kind == "f" else np.int64))
    if array.dtype == np.uint8:
        raise ValueError(f"{file}: {name} should hold real numbers, but holds uint8. Store images as floats, x / 255.")
    if array.dtype.kind == "i" and array.min() < 0:
        raise ValueError(f"{file}: {name} holds whole numbers below 0, which are no tokens. Store it as floats.")
    return tensor


def _check_alike(file: Path, train: Examples, other: Examples | None) -> None:
    if other is None:
        return
    ours, theirs = ([(tuple(x.shape[1:]), x.dtype) for x in (*part.inputs, part.targets)] for part in (train, other))
    if ours != theirs:
        raise ValueError(
            f"{file}: all parts should have rows of the same shapes and types, but got {ours} and {theirs}."
        )


def _task(file: Path, likelihood: str | None, parts: list[Examples]) -> Task:
    """Describe the task; the first part is the one that is trained on."""
    targets, first = parts[0].targets, parts[0].inputs[0]
    if likelihood is None:
        likelihood = "gaussian" if targets.is_floating_point() else "categorical"
    check_choice("task", likelihood, TASKS)
    tokens = not first.is_floating_point()
    vocabulary = int(max(part.inputs[0].max() for part in parts)) + 1 if tokens else None
    outputs, mean, std = int(np.prod(targets.shape[1:])), 0.0, 1.0
    if likelihood == "gaussian":
        mean, std = (float(one) for one in mean_and_std(targets.numpy().reshape(-1)))
    elif likelihood == "poisson":
        wrong = targets[~((targets >= 0) & (targets == targets.round()))]
        if len(wrong):
            raise ValueError(f"{file}: targets of a poisson task should be counts, but got {wrong[0].item():g}.")
    else:
        highest = _highest_class(file, likelihood, (part.targets for part in parts))
        outputs = highest + 1 if likelihood == "categorical" else outputs
    return Task(likelihood, outputs, tuple(first.shape[1:]), None, vocabulary, mean, std)


def _highest_class(file: Path, likelihood: str, targets: Iterable[Tensor]) -> int:
    """Return the highest class number; raise unless all are whole and from 0."""
    values = torch.cat(list(targets))
    highest = 1 if likelihood == "bernoulli" else int(values.max())
    wrong = values[(values != values.long()) | (values < 0) | (values > highest)]
    expected = "0 or 1" if likelihood == "bernoulli" else "class numbers from 0, one for each row"
    if len(wrong):
        raise ValueError(f"{file}: targets of a {likelihood} task should be {expected}, but got {wrong[0].item():g}.")
    if likelihood == "categorical" and values.dim() > 1:
        raise ValueError(f"{file}: targets of a {likelihood} task should be {expected}, but got rows of them.")
    return highest


def _with_task(part: Examples, task: Task) -> Examples:
    if task.likelihood == "gaussian":
        return Examples(part.inputs, ((part.targets - task.target_mean) / task.target_std).float())
    return Examples(part.inputs, part.targets.long())
