"""The CSV tables of MIMIC-III, read in batches: CHARTEVENTS has 330 million rows and fits no memory."""

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from slimbayes.data.sources import missing


def find_table(folder: Path, table: str) -> Path | None:
    """Return ``TABLE.csv`` or ``TABLE.csv.gz``, in upper or lower case, or None.

    Example:
        >>> find_table(Path("no-such-folder"), "ADMISSIONS")
    """
    names = [f"{name}.csv{ending}" for name in (table.upper(), table.lower()) for ending in ("", ".gz")]
    return next((folder / name for name in names if (folder / name).is_file()), None)


def read_batches(folder: Path, table: str, columns: dict[str, str]) -> Iterator[Any]:
    """Yield a table's rows in order, as ``pyarrow.RecordBatch`` es of these columns.

    Args:
        folder: Holds the tables.
        table: Its name, such as ``"LABEVENTS"``.
        columns: Their names in upper case, as the batches have them, whatever the file's case is; and for each one
            pyarrow's name of its type, such as ``"int64"`` or ``"timestamp[s]"``.

    Raises:
        MissingData: The table is not there.
        ValueError: It lacks a column, or a value is not of its type.
    """
    try:
        import pyarrow
        from pyarrow import csv as arrow_csv
    except ImportError as error:
        raise ImportError('MIMIC-III needs pyarrow: pip install "slimbayes[train]"') from error
    path = find_table(folder, table)
    if path is None:
        raise missing("mimic3", f"{table}.csv or {table}.csv.gz in {folder}")
    names = _names(path, columns)
    types = {names[column]: pyarrow.type_for_alias(kind) for column, kind in columns.items()}
    try:
        with arrow_csv.open_csv(
            path,
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                column_types=types, include_columns=list(types), strings_can_be_null=True
            ),
        ) as reader:
            for batch in reader:
                yield batch.rename_columns(list(columns))
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} is damaged or not a table of MIMIC-III: {error}") from error


def read_table(folder: Path, table: str, columns: dict[str, str]) -> dict[str, Any]:
    """Return the columns of a small table as NumPy arrays; see ``read_batches``."""
    batches = list(read_batches(folder, table, columns))
    if not sum(map(len, batches)):
        raise ValueError(f"{find_table(folder, table)} has no rows.")
    return {
        column: np.concatenate([batch.column(column).to_numpy(zero_copy_only=False) for batch in batches])
        for column in columns
    }


def _names(path: Path, columns: dict[str, str]) -> dict[str, str]:
    """Return the file's own spelling of each column."""
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(newline="") as lines:
            header = next(csv.reader(lines), [])
    except (OSError, EOFError) as error:
        raise ValueError(f"{path} is truncated or damaged: {error}.") from error
    spelt = {name.strip().upper(): name for name in header}
    if lacking := [column for column in columns if column not in spelt]:
        raise ValueError(f"{path} should have the columns {', '.join(columns)}, but lacks {', '.join(lacking)}.")
    return {column: spelt[column] for column in columns}
