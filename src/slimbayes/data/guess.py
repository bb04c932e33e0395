"""What the columns of a table seem to be, for whoever gives nothing but the table and what to predict."""

import re
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slimbayes._checks import check_choice
from slimbayes.data._columns import MOST_NUMBERED_NAMES, check_names, kind_of, numbers_of, texts_of
from slimbayes.data._table_file import COMMAS, TableFile, pyarrow, read_table_file

__all__ = ["TASK_WORDS", "ColumnGuess", "TableGuess", "guess_table"]

#: Words for tasks, and the likelihoods that they stand for.
TASK_WORDS = {"regression": "gaussian", "classes": "categorical", "counts": "poisson"}
#: Of fewer rows, values that all differ tell nothing.
FEW_ROWS = 20
#: Counts with a larger mean are as well described by a regression.
LARGEST_MEAN_COUNT = 30.0
#: More different texts than this share of the rows are names of the rows rather than categories.
MOSTLY_DIFFERENT = 0.5
_NAME_OF_ID = re.compile(
    r"(^|[\W_])(id|ids|uuid|guid|index|idx|rowid|row|nr|no|key)$|[a-z]I[dD]$|^unnamed: 0$|^$", re.I
)


@dataclass(frozen=True)
class ColumnGuess:
    """What a column is taken for.

    Attributes:
        name: Of the column.
        role: ``"target"``, ``"input"`` or ``"ignored"``.
        kind: ``"number"``, ``"date"``, ``"truth value"``, ``"category"``, ``"constant"``, ``"identifier"`` or
            ``"empty"``; nothing if it was to be ignored.
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
    r"""Guess what is to be predicted, and what each column is.

    Identifiers are texts that mostly differ, and whole numbers that all differ and count the rows or have a name such
    as ``id``. Codes, whole numbers written with leading zeros, are categories. Counts are whole numbers from 0 on, more
    than ten different ones, with a mean of at most 30; whole numbers of fewer values are classes.

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
        ...     _ = path.write_text("id,size,price\n" + "".join(f"{n},{n % 7}.5,{n * 1.5}\n" for n in range(30)))
        ...     guess = guess_table(path, "price")
        >>> guess.task, guess.options["ignore"]
        ('regression', ['id'])
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", f".*{COMMAS}")  # the remarks have them
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

    judge = _Judge(table, set(categorical), set(numeric), max_categories)
    guesses, parse, names_of = [], [], []
    for name, column in table.columns.items():
        if name in ignore:
            guesses.append(ColumnGuess(name, "ignored", "", column.null_count, "as you say"))
            continue
        seen = judge(name, is_target=name == target)
        role = "target" if name == target else "input" if seen.useful else "ignored"
        if role != "ignored" and seen.parsed:
            parse.append(name)
        if role != "ignored" and seen.listed:
            names_of.append(name)
        guesses.append(ColumnGuess(name, role, seen.kind, column.null_count, seen.remark))
    found = {
        "ignore": [one.name for one in guesses if one.role == "ignored"],
        "categorical": names_of,
        "parse": parse,
    }
    goal = next(one for one in guesses if one.role == "target")
    if task is None:
        task = _task(table, target, goal.kind)
    elif task != "classes" and goal.kind in ("category", "empty"):
        raise ValueError(
            f"Expected the target {target!r} of task {task!r} to be numbers, but its values are texts ({goal.remark}). "
            "Use task 'classes', or correct the file."
        )
    return TableGuess(path, rows, task, tuple(guesses), {name: value for name, value in found.items() if value})


class _Seen(NamedTuple):
    """What a column is: whether it tells anything, is listed in `categorical`, or in `parse`."""

    kind: str
    remark: str
    useful: bool = True
    listed: bool = False
    parsed: bool = False


@dataclass(frozen=True)
class _Judge:
    table: TableFile
    categorical: set[str]
    numeric: set[str]
    most: int

    def __call__(self, name: str, is_target: bool) -> _Seen:
        table, column = self.table, self.table.columns[name]
        settled = is_target or name in self.categorical or name in self.numeric
        is_text = table.typed and kind_of(column, True) == "categorical"
        kind = "categorical" if name in self.categorical else kind_of(column, table.typed and not is_text)
        if kind is None:
            return _Seen("empty", "no value in any row", useful=False)
        texts = texts_of(column, name)
        present = texts[texts != ""]
        found = np.unique(present)
        if len(found) == 1 and len(present) == len(texts) and not settled:
            return _Seen("constant", f"always {_short(found[0])}", useful=False)
        if kind == "categorical":
            return self._category(name, texts, found, settled, is_target)
        parsed = is_text
        written = ", written as text" if parsed else ", with decimal commas" if name in table.decimal_commas else ""
        if kind == "boolean":
            return _Seen("truth value", ", ".join(found[:2]) + written, parsed=parsed)
        numbers = numbers_of(column, kind, name, table.rows)
        values = numbers[~np.isnan(numbers)]
        if kind == "date":
            return _Seen("date", f"{found[0][:10]} to {found[-1][:10]}{written}", parsed=parsed)
        if not settled and any(re.fullmatch(r"0\d+", text) for text in found.tolist()):
            return _Seen("category", f"codes with leading zeros, such as {_short(found[0])}", listed=True)
        if not settled and _counts_rows(name, values):
            return _Seen("identifier", "whole numbers, another one in each row", useful=False)
        return _Seen("number", f"{values.min():.6g} to {values.max():.6g}{written}", parsed=parsed)

    def _category(self, name: str, texts: NDArray[Any], found: NDArray[Any], settled: bool, is_target: bool) -> _Seen:
        path, named = self.table.path, name in self.categorical
        if name in self.numeric:
            odd = next((text for text in found if kind_of(pyarrow().array([text]), False) != "number"), found[0])
            raise ValueError(
                f"{path}: column {name!r} is not a number in every row, but {odd!r} in one. Correct it, or leave the "
                "field empty if the value is missing."
            )
        if not named and not self.table.typed:
            check_names(texts, name, self.table.rows)
        present = int((texts != "").sum())
        if not settled and present >= FEW_ROWS and len(found) > MOSTLY_DIFFERENT * present:
            return _Seen("identifier", f"{len(found)} different texts, such as {_short(found[0])}", useful=False)
        listed = ", ".join(map(_short, found[:3].tolist())) + (", ..." if len(found) > 3 else "")
        if len(found) > self.most and not is_target:
            return _Seen("category", f"the most frequent {self.most} of {len(found)}: {listed}", listed=True)
        return _Seen("category", f"{len(found)}: {listed}", listed=named)


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


def _short(text: str) -> str:
    return text if len(text) <= 20 else f"{text[:17]}..."
