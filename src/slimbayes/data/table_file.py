"""CSV and Parquet files as named columns of Arrow arrays."""

import csv
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["TableFile", "pyarrow", "read_table_file"]

#: What stands for a missing value in a CSV file, besides pandas' and Arrow's usual spellings.
_ALSO_MISSING = ["?", "None", "<NA>"]
_PARQUET = b"PAR1"
#: Bytes of a CSV file that Arrow takes at once: it can count to 2 GiB, and a row must fit.
_BLOCK = 2**30


class TableFile(NamedTuple):
    """A table as it was read.

    Attributes:
        path: The file.
        columns: Arrow's chunked array of each name.
        typed: Whether the file gives its columns types, as Parquet does; otherwise all are text.
    """

    path: Path
    columns: dict[str, Any]
    typed: bool


def pyarrow() -> Any:
    """Import pyarrow with the parts that reading tables needs.

    Example:
        >>> pyarrow().array([1]).type
        DataType(int64)
    """
    try:
        import pyarrow as pa
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError('Tables need pyarrow: pip install "slimbayes[train]"') from error
    return pa


def read_table_file(path: Path) -> TableFile:
    r"""Read a CSV or Parquet file, told apart by content.

    A CSV file is UTF-8 text with a header, separated by commas, semicolons or tabs, and may be compressed (.gz and so
    on). Blanks around values do not count. Empty fields, and the usual spellings such as NA, nan, NULL or ?, are
    missing values.

    Raises:
        ValueError: The file is broken, or its columns' names are missing or repeated.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "my.csv"
        ...     _ = path.write_text('age,town\n41,"Bath, UK"\n,NA\n')
        ...     columns = read_table_file(path).columns
        >>> {name: column.to_pylist() for name, column in columns.items()}
        {'age': ['41', None], 'town': ['Bath, UK', None]}
    """
    pa = pyarrow()
    try:
        with path.open("rb") as file:
            typed = file.read(4) == _PARQUET
        table = pa.parquet.read_table(path) if typed else _read_csv(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error) as error:
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
            raise
        kind = "Parquet" if path.suffix in (".parquet", ".pq") else "CSV"
        raise ValueError(f"{path} cannot be read as {kind}: {error}") from error
    names = table.column_names
    for index, name in enumerate(names):
        if not name.strip():
            raise ValueError(f"{path} has no name for its column {index + 1}. Give it one in the header.")
        if name in names[:index]:
            raise ValueError(f"{path} has two columns called {name!r}. Rename one.")
    return TableFile(path, dict(zip(names, table.columns, strict=True)), typed)


def _read_csv(path: Path) -> Any:
    """Return a table of text columns; Arrow's own guesses of types would hang on where its blocks end."""
    pa = pyarrow()
    with pa.input_stream(str(path)) as stream:
        content = stream.read_buffer()
    text = content.to_pybytes().decode("utf-8-sig").lstrip("\r\n")
    first = re.sub('"[^"]*"', "", text.split("\n", 1)[0])
    delimiter = max(",;\t", key=first.count)
    header = next(csv.reader(io.StringIO(text), delimiter=delimiter), [])
    if not header:
        raise csv.Error("it is empty")
    content = pa.py_buffer((text if text.endswith("\n") else text + "\n").encode())
    table = pa.csv.read_csv(
        pa.BufferReader(content),
        read_options=pa.csv.ReadOptions(block_size=min(content.size, _BLOCK)),
        parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(column_types=dict.fromkeys(header, pa.string())),
    )
    missing = pa.array([*pa.csv.ConvertOptions().null_values, *_ALSO_MISSING])
    columns = [_present(column, missing) for column in table.columns]
    return pa.table(columns, [name.strip() for name in table.column_names])


def _present(column: Any, missing: Any) -> Any:
    """Return texts without surrounding blanks, null where they stand for a missing value."""
    pa = pyarrow()
    texts = pa.compute.utf8_trim_whitespace(column)
    return pa.compute.if_else(pa.compute.is_in(texts, missing), pa.scalar(None, pa.string()), texts)
