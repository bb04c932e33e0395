"""What the columns of a table seem to be, for whoever gives nothing but the table and what to predict."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimbayes._checks import check_choice
from slimbayes.data._columns import MOST_NUMBERED_NAMES, kind_of, numbers_of, texts_of
from slimbayes.data._table_file import TableFile, pyarrow, read_table_file

__all__ = ["TASK_WORDS", "ColumnGuess", "TableGuess", "guess_table"]

#: Words for tasks, and the likelihoods that they stand for.
TASK_WORDS = {"regression": "gaussian", "classes": "categorical", "counts": "poisson"}
#: Of fewer rows, values that all differ tell nothing.
FEW_ROWS = 20
#: Counts with a larger mean are as well described by a regression.
LARGEST_MEAN_COUNT = 30.0
#: More different texts than this share of the rows are names of the rows rather than categories.
MOSTLY_DIFFERENT = 0.5
_NAME_OF_ID = re.compile(r"(^|[\W_])(id|ids|uuid|guid|index|idx|rowid|row|nr|no|key)$|[a-z]I[dD]$|^unnamed: 0$|^$", re.I)


@dataclass(frozen=True)
class ColumnGuess:
    """What a column is taken for.

    Attributes:
        name: Of the column.
        role: ``"target"``, ``"input"`` or ``"ignored"``.
        kind: ``"number"``, ``"date"``, ``"truth value"``, ``"category"``, ``"constant"``, ``"identifier"``, ``"empty"``.
        missing: Number of rows without a value.
        remark: What shows it, and whether its values are written in an unusual way.
    """

    name: str
    role: str
    kind: str
    missing: int
    remark: str


@dataclass(frozen=True)
class TableGuess:
    """What a table is taken for.

    Attributes:
        path: The file.
        rows: How many there are.
        task: One of ``TASK_WORDS``.
        columns: What each is taken for, in the file's order.
        options: Those of the data set ``table`` that say the same.
    """

    path: Path
    rows: int
    task: str
    columns: tuple[ColumnGuess, ...]
    options: dict[str, Any]


def guess_table(
    path: Path,
    target: str,
    *,
    task: str | None = None,
    ignore: Collection[str] = (),
    categorical: Collection[str] = (),
    numeric: Collection[str] = (),
    max_categories: int = 100,
) -> TableGuess:
    """Guess what is to be predicted, and what each column is.

    Identifiers are texts that mostly differ, and whole numbers that count the rows or have a name such as ``id`` and all
    differ. Codes are whole numbers written with leading zeros: categories. Counts are whole numbers from 0 on, more than
    ten different ones, with a mean of at most 30.

    Args:
        path: A CSV or Parquet file.
        target: Column to predict.
        task: A word of ``TASK_WORDS``; None to guess.
        ignore: Columns that are no inputs.
        categorical: Columns whose values are names, whatever they look like.
        numeric: Columns whose values are numbers (or dates), whatever they look like.
        max_categories: The most categories of a column; of more, the most frequent ones are kept.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "a.csv"
        ...     _ = path.write_text("id,size,price\\n" + "".join(f"{n},{n % 7}.5,{n * 1.5}\\n" for n in range(30)))
        ...     guess = guess_table(path, "price")
        >>> guess.task, guess.options["ignore"]
        ('regression', ['id'])
    """
    table = read_table_file(path)
    check_choice("target", target, table.columns)
    for argument, names in {"ignore": ignore, "categorical": categorical, "numeric": numeric}.items():
        for name in names:
            check_choice(argument, name, table.columns)
    if target in ignore:
        raise ValueError(f"Expected argument `ignore` to leave the target alone, but got {target!r}.")
    for first, second in ((ignore, categorical), (ignore, numeric), (categorical, numeric)):
        if both := sorted(set(first) & set(second)):
            raise ValueError(f"Expected a column to be given one role, but {both[0]!r} has two. Leave one out.")
    if task is not None:
        check_choice("task", task, TASK_WORDS)
    rows = len(table.columns[target])

    guesses, parse, names_of = [], [], []
    for name, column in table.columns.items():
        kind, remark, reads = _judge(table, name, column, name in categorical, name in numeric, max_categories)
        role = "target" if name == target else "input"
        if name == target and kind in ("identifier", "code"):
            kind = "category" if name in categorical or not _is_numeric(table, column) else "number"
        elif name in ignore:
            role, remark = "ignored", "as you say"
        elif role == "input" and kind in ("constant", "identifier", "empty"):
            role = "ignored"
        if role != "ignored":
            if reads:
                parse.append(name)
            if name in categorical or kind == "code" or (role == "input" and remark.startswith("the most frequent")):
                names_of.append(name)
        shown = "category" if kind == "code" else kind
        guesses.append(ColumnGuess(name, role, shown, column.null_count, remark))
    options: dict[str, Any] = {
        "ignore": [one.name for one in guesses if one.role == "ignored"],
        "categorical": names_of,
        "parse": parse,
    }
    options = {name: value for name, value in options.items() if value}
    kind = next(one.kind for one in guesses if one.role == "target")
    if task is None:
        task = _task(table, target, kind)
    return TableGuess(path, rows, task, tuple(guesses), options)


def _judge(
    table: TableFile, name: str, column: Any, as_names: bool, as_numbers: bool, most: int
) -> tuple[str, str, bool]:
    """Return kind and remark of a column, and whether its texts are to be read although the file has types."""
    is_text = table.typed and kind_of(column, True) == "categorical"
    kind = "categorical" if as_names else kind_of(column, table.typed and not is_text)
    if kind is None:
        return "empty", "no value in any row", False
    reads = is_text and not as_names and kind != "categorical"
    written = ", written as text" if reads else ""
    texts = texts_of(column, name)
    present = texts[texts != ""]
    found = np.unique(present)
    if len(found) == 1 and len(present) == len(texts) and not (as_names or as_numbers):
        return "constant", f"always {_short(found[0])}", False
    if kind == "categorical":
        if as_numbers:
            raise ValueError(
                f"{table.path}: column {name!r} is no number in every row: {_odd(found)!r}, for one. Correct it, or "
                "leave the field empty where the value is missing."
            )
        return (*_names(name, present, found, as_names, most), False)
    if kind == "boolean":
        return "truth value", written.lstrip(", "), reads
    numbers = numbers_of(column, kind, name, table.rows)
    values = numbers[~np.isnan(numbers)]
    if kind == "date":
        return "date", f"{found[0][:10]} to {found[-1][:10]}{written}", reads
    if not as_numbers:
        if any(re.fullmatch(r"0\d+", text) for text in found.tolist()):
            return "code", f"numbers with leading zeros, such as {_short(found[0])}", False
        if _counts_rows(name, values):
            return "identifier", "whole numbers, a new one in each row", False
    return "number", f"{values.min():.6g} to {values.max():.6g}{written}", reads


def _names(name: str, present: NDArray[Any], found: NDArray[Any], as_names: bool, most: int) -> tuple[str, str]:
    differ = len(present) >= FEW_ROWS and len(found) > MOSTLY_DIFFERENT * len(present)
    if differ and not as_names:
        return "identifier", f"{len(found)} different texts, such as {_short(found[0])}"
    listed = ", ".join(map(_short, found[:3].tolist())) + (", ..." if len(found) > 3 else "")
    if len(found) > most:
        return "category", f"the most frequent {most} of {len(found)}: {listed}"
    return "category", f"{len(found)}: {listed}"


def _counts_rows(name: str, values: NDArray[np.float64]) -> bool:
    if len(values) < FEW_ROWS or len(np.unique(values)) < len(values) or (values != np.round(values)).any():
        return False
    in_a_row = values.min() in (0, 1) and values.max() - values.min() == len(values) - 1
    return bool(in_a_row or _NAME_OF_ID.search(name))


def _task(table: TableFile, target: str, kind: str) -> str:
    if kind == "date":
        return "regression"
    if kind != "number":
        return "classes"
    column = table.columns[target]
    values = numbers_of(column, "number", target)
    values = values[~np.isnan(values)]
    whole = bool((values == np.round(values)).all())
    if whole and len(np.unique(values)) <= MOST_NUMBERED_NAMES:
        return "classes"
    is_count = whole and values.min() == 0 and values.mean() <= LARGEST_MEAN_COUNT
    return "counts" if is_count else "regression"


def _is_numeric(table: TableFile, column: Any) -> bool:
    return kind_of(column, table.typed and not _holds_text(column)) == "number"


def _holds_text(column: Any) -> bool:
    return kind_of(column, True) == "categorical"


def _odd(found: NDArray[Any]) -> str:
    return next((text for text in found.tolist() if kind_of(pyarrow().array([text]), False) != "number"), found[0])


def _short(text: str) -> str:
    return text if len(text) <= 20 else f"{text[:17]}..."
