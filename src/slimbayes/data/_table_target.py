"""The column of a table that is to be predicted: its task, its classes, and each row's value."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slimbayes._checks import check_choice
from slimbayes.data._columns import MOST_NUMBERED_NAMES, check_names, kind_of, numbers_of, texts_of
from slimbayes.data._table_file import TableFile
from slimbayes.data.dataset import TASKS


class Target(NamedTuple):
    """What is to be predicted.

    Attributes:
        likelihood: One of ``TASKS``.
        classes: Their names in order; None for gaussian and poisson.
        values: ``(rows,)``: class numbers as int64, or float64.
        present: ``(rows,)``: whether a row has a value; where not, ``values`` means nothing.
    """

    likelihood: str
    classes: tuple[str, ...] | None
    values: NDArray[Any]
    present: NDArray[np.bool_]


def read_target(table: TableFile, name: str, task: str | None, as_text: bool) -> Target:
    """Read the target; see ``load_table`` for how the task is inferred.

    Args:
        table: The table.
        name: Column.
        task: What the user says that it is; None to infer.
        as_text: Whether numbers are names.

    Example:
        >>> from pathlib import Path
        >>> from slimbayes.data._table_file import pyarrow
        >>> table = TableFile(Path("a.csv"), {"y": pyarrow().array(["10", None, "9"])}, typed=False)
        >>> read_target(table, "y", None, as_text=False)[:3]
        ('categorical', ('9', '10'), array([1, 2, 0]))
    """
    if task is not None:
        check_choice("task", task, TASKS)
    column = table.columns[name]
    kind = kind_of(column, table.typed) or "categorical"
    if as_text or (kind == "date" and task not in (None, "gaussian")):
        kind = "categorical"
    values, present = _values(column, kind, name)
    if kind == "categorical" and not (as_text or table.typed or task in ("categorical", "bernoulli")):
        check_names(values, name)
    if not present.any():
        raise ValueError(f"{table.path}: the target {name!r} has no value in any row.")
    if task is None:
        is_real = kind == "date" or (kind == "number" and not _few_and_whole(values[present]))
        task = "gaussian" if is_real else "categorical"
    if task in ("gaussian", "poisson"):
        if kind == "categorical":
            raise ValueError(
                f"Expected the target {name!r} of a {task} task to be numbers, but it is text, such as "
                f"{values[present][0]!r}. Use task 'categorical', or correct the file."
            )
        counted = values[present]
        wrong = counted[(counted < 0) | (counted != np.round(counted))] if task == "poisson" else []
        if len(wrong):
            raise ValueError(
                f"Expected the target {name!r} of a poisson task to be counts 0, 1, 2, ..., but got {wrong[0]:g}. Use "
                "task 'gaussian', or correct the file."
            )
        return Target(task, None, values, present)
    found = np.unique(values[present])
    classes = tuple(_class_name(value, kind) for value in found.tolist())
    if len(found) < 2 or (task == "bernoulli" and len(found) > 2):
        expected = "two classes" if task == "bernoulli" else "at least two classes"
        raise ValueError(
            f"Expected the target {name!r} of a {task} task to have {expected}, but it has {len(found)}: "
            f"{', '.join(classes[:5])}."
        )
    return Target(task, classes, np.searchsorted(found, values), present)


def _values(column: Any, kind: str, name: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    if kind == "categorical":
        texts = texts_of(column, name)
        return texts, texts != ""
    numbers = numbers_of(column, kind, name)
    return numbers, ~np.isnan(numbers)


def _few_and_whole(values: NDArray[np.float64]) -> bool:
    found = np.unique(values)
    return len(found) <= MOST_NUMBERED_NAMES and bool((found == np.round(found)).all())


def _class_name(value: Any, kind: str) -> str:
    if kind == "boolean":
        return "true" if value else "false"
    return str(int(value)) if kind == "number" and value.is_integer() else str(value)
