"""Any CSV or Parquet table: typed columns, missing values, a target, and the same for prediction."""

import difflib
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from slimbayes._checks import check_choice, check_count
from slimbayes.data._columns import (
    Category,
    Column,
    Number,
    check_names,
    column_from,
    has_zones,
    kind_of,
    numbers_of,
    spec_of,
    texts_of,
)
from slimbayes.data._standardise import standardised_targets
from slimbayes.data._table_file import TableFile, open_table_file, pyarrow, read_table_file
from slimbayes.data._table_target import Target, read_target
from slimbayes.data.dataset import DataSet, Task
from slimbayes.data.folders import find_file
from slimbayes.data.preparation import Preparation, Raw, RawBlocks, register_preparation
from slimbayes.data.splits import Split, split_examples, split_rows

__all__ = ["Table", "load_table"]

#: Words in a column that says to which part a row belongs.
_PART_OF = {"train": 0, "training": 0, "validation": 1, "valid": 1, "val": 1, "dev": 1, "test": 2, "testing": 2}


@register_preparation
class Table(Preparation):
    """Reads tables with the columns that were trained on; what it reads is ready for the network.

    Args:
        columns: JSON values of each column, as in ``spec()``: name, kind and statistics or categories.

    Shape:
        - Raw, and result: ``(batch, features)``, float32.

    Example:
        >>> pet = {"kind": "categorical", "name": "pet", "categories": ["cat", "dog"]}
        >>> Table(columns=[pet]).width
        3
    """

    kind = "table"

    def __init__(self, columns: Sequence[dict[str, Any]]) -> None:
        self.columns = [column_from(spec) for spec in columns]

    @property
    def width(self) -> int:
        """Number of features that the network gets."""
        return sum(column.width for column in self.columns)

    def spec(self) -> dict[str, Any]:  # noqa: D102
        return {"kind": self.kind, "columns": [spec_of(column) for column in self.columns]}

    def read(self, path: Path) -> Raw:
        """Read a CSV or Parquet file with these columns, in any order; others, such as the target, are ignored."""
        features = self.encode(read_table_file(path))
        return Raw((features,), [str(row) for row in range(len(features))])

    def open(self, path: Path) -> RawBlocks:
        """Open such a file, of which no more than a block is ever in memory."""
        reader = open_table_file(path)
        self._check_names(path, reader.names)
        names = [column.name for column in self.columns]

        def blocks(size: int) -> Iterator[Raw]:
            zoned: dict[str, bool] = {}
            for table in reader.blocks(size, names):
                with _naming(path):
                    _check_zones(table, self.columns, zoned)
                features = self.encode(table)
                assert table.rows is not None
                yield Raw((features,), [str(row) for row in table.rows])

        return RawBlocks(reader.rows, self.width, blocks)

    def _check_names(self, path: Path, names: Collection[str]) -> None:
        for column in self.columns:
            if column.name not in names:
                near = difflib.get_close_matches(column.name, names, n=1, cutoff=0.0)
                hint = f" The nearest that it has is {near[0]!r}." if near else ""
                raise ValueError(f"{path} lacks the column {column.name!r}, which was trained on.{hint}")

    def encode(self, table: TableFile) -> torch.Tensor:
        """Return the features, ``(rows, width)``, of a table."""
        self._check_names(table.path, table.columns)
        with _naming(table.path):
            parts = [column.encode(column.values(table.columns[column.name], table.rows)) for column in self.columns]
        return torch.from_numpy(np.concatenate(parts, 1))


def _check_zones(table: TableFile, columns: Sequence[Column], zoned: dict[str, bool]) -> None:
    """Raise if a block's dates have time zones and those of the blocks before (``zoned``) had none, or the reverse."""
    for column in columns:
        now = has_zones(table.columns[column.name]) if column.kind == "date" else None
        if now is not None and zoned.setdefault(column.name, now) != now:
            assert table.rows is not None
            raise ValueError(
                f"Column {column.name!r} has dates with and without a time zone (rows before and after "
                f"{table.rows[0]}, counted from 0), of which it is not clear what they mean."
            )


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let an error begin with the file that it is about."""
    try:
        yield
    except ValueError as error:
        known = str(error).startswith(str(path))
        raise (error if known else ValueError(f"{path}: {error}")) from error.__cause__


def load_table(
    folder: Path,
    *,
    path: str,
    target: str,
    task: str | None = None,
    ignore: str | Sequence[str] = (),
    categorical: str | Sequence[str] = (),
    parse: str | Sequence[str] = (),
    max_categories: int = 100,
    validation: int | float = 0.1,
    test: int | float = 0.2,
    seed: int | None = 0,
    split_column: str | None = None,
) -> DataSet:
    r"""Load a CSV or Parquet file; statistics and categories are those of the rows that are trained on.

    Numbers and dates (in days) are standardised, truth values are 0 or 1. Where a value is missing, it is the
    training mean, and a further column says so if training had such; an infinite value is an error. Texts become one
    column for each category and one for anything else, missing included. Types are Parquet's own; those of a CSV file
    are what all of a column's values can be read as. A column without a value in training is left out with a warning.

    Args:
        folder: Where a relative path may start, besides the working folder.
        path: The file; see ``open_table_file`` for what a CSV file may look like.
        target: Column to predict. Rows where it is missing are dropped with a warning.
        task: What the target is; None to infer it. ``"categorical"``: one output for each class. ``"bernoulli"``: one
            logit, for two classes; its yes is the second in order. ``"gaussian"``: a number, standardised.
            ``"poisson"``: a count. None: gaussian for numbers, except for at most 10 different whole ones; categorical
            otherwise, for two classes as well.
        ignore: Columns to leave out: row numbers, names and whatever would give the target away.
        categorical: Columns of numbers that are really names, such as codes. Also columns of which only the
            ``max_categories`` most frequent texts matter.
        parse: Columns of texts, of a Parquet file, that are numbers, dates or truth values as in a CSV file.
        max_categories: The most categories of a column; more are an error, unless it is listed in ``categorical``.
        validation: Count, or fraction, of the rows to choose on.
        test: Count or fraction to test on.
        seed: Of the split, in proportion for classes. None for the rows' own order, without such proportions.
        split_column: Column that says train, validation or test (or val, valid, dev) for each row, instead of the
            three options before; it is no input.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rows = "".join(f"{age},{'yes' if age > 40 else 'no'}\n" for age in range(20, 60))
        ...     _ = (Path(folder) / "my.csv").write_text("age,retired\n" + rows)
        ...     data = load_table(Path(folder), path="my.csv", target="retired")
        >>> len(data.train), data.task.classes
        (28, ('no', 'yes'))
    """
    check_count("max_categories", max_categories)
    table = read_table_file(find_file(folder, path))
    with _naming(table.path):
        check_choice("target", target, table.columns)
    as_text, left_out = _names("categorical", categorical, table), _names("ignore", ignore, table)
    parsed = _names("parse", parse, table)
    if both := as_text & parsed:
        raise ValueError(f"Expected `categorical` and `parse` to name different columns, but both have {sorted(both)}.")
    no_inputs = {target} | left_out | _names("split_column", split_column or (), table)
    if len(no_inputs) < 1 + len(left_out) + (split_column is not None):
        raise ValueError(
            f"Expected `target`, `split_column` and `ignore` to name different columns, but got {target!r}, "
            f"{split_column!r} and {sorted(left_out)}."
        )

    with _naming(table.path):
        typed = table.typed and target not in parsed
        goal = read_target(table._replace(typed=typed), target, task, as_text=target in as_text)
    table = _rows_with_target(table, target, goal)
    values = goal.values[goal.present]
    if split_column is not None:
        rows = _split_by(table, split_column)
    else:
        stratify = goal.classes is not None and seed is not None
        rows = split_rows(len(values), validation, test, seed, torch.from_numpy(values) if stratify else None)

    inputs = [name for name in table.columns if name not in no_inputs]
    with _naming(table.path):
        columns = [
            _column(
                table._replace(typed=table.typed and name not in parsed),
                name,
                rows.train.numpy(),
                name in as_text,
                max_categories,
            )
            for name in inputs
        ]
    preparation = Table([spec_of(column) for column in columns if column is not None])
    if not preparation.columns:
        raise ValueError(f"{table.path} has no column left to predict {target!r} from.")
    shape = (preparation.width,)
    if goal.likelihood == "poisson":
        targets, described = torch.from_numpy(values).long(), Task("poisson", 1, shape)
    elif goal.classes is None:
        targets, mean, std = standardised_targets(values, rows.train)
        described = Task("gaussian", 1, shape, target_mean=mean, target_std=std)
    else:
        targets = torch.from_numpy(values)
        outputs = len(goal.classes) if goal.likelihood == "categorical" else 1
        described = Task(goal.likelihood, outputs, shape, classes=goal.classes)
    parts = split_examples((preparation.encode(table),), targets, rows)
    return DataSet("table", *parts, described, preparation)


def _names(argument: str, names: str | Sequence[str], table: TableFile) -> set[str]:
    listed = [names] if isinstance(names, str) else names
    for name in listed:
        check_choice(argument, name, table.columns)
    return set(listed)


def _rows_with_target(table: TableFile, name: str, target: Target) -> TableFile:
    missing = int((~target.present).sum())
    if not missing:
        return table
    warnings.warn(f"{table.path}: dropped {missing} rows without a target {name!r}.", stacklevel=3)
    kept = pyarrow().array(target.present)
    columns = {name: column.filter(kept) for name, column in table.columns.items()}
    return table._replace(columns=columns, rows=np.flatnonzero(target.present))


def _split_by(table: TableFile, name: str) -> Split:
    parts = np.array([part.lower() for part in texts_of(table.columns[name], name)], dtype=object)
    for part in np.unique(parts):
        check_choice(f"split_column: value in {name}", part, _PART_OF)
    numbers = np.array([_PART_OF[part] for part in parts])
    if not (numbers == 0).any():
        raise ValueError(f"{table.path}: column {name!r} says train for no row.")
    return Split(*(torch.from_numpy(np.flatnonzero(numbers == part)) for part in range(3)))


def _column(table: TableFile, name: str, train: NDArray[Any], as_text: bool, max_categories: int) -> Column | None:
    """Return a column with the statistics of the training rows; None, with a warning, if these have no value."""
    column = table.columns[name]
    kind = "categorical" if as_text else kind_of(column, table.typed)
    if kind == "categorical":
        texts = texts_of(column, name)
        if not (as_text or table.typed):
            check_names(texts, name, table.rows)
        texts = texts[train]
        if (texts != "").any():
            return Category.by(name, texts, max_categories, may_drop=as_text)
    elif kind is not None:
        numbers = numbers_of(column, kind, name, table.rows)[train]
        if not np.isnan(numbers).all():
            return Number.by(name, kind, numbers)
    warnings.warn(f"{table.path}: left out column {name!r}, which has no value in any training row.", stacklevel=3)
    return None
