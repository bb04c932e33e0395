"""CSV and Parquet files as named columns of Arrow arrays."""

import csv
import io
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
        rows: Where the rows stand in the file, if some were left out.
    """

    path: Path
    columns: dict[str, Any]
    typed: bool
    rows: NDArray[np.int64] | None = None


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
    on). Between semicolons or tabs, a column of numbers such as 0,5 has decimal commas, and is read so with a warning;
    other numbers with commas, such as 1.234,5 or "1,234", are an error. Blanks around values do not count. Empty
    fields, and the usual spellings such as NA, nan, NULL or ?, are missing values.

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
    text = _decoded(content.to_pybytes()).lstrip("\r\n")
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
    names = [name.strip() for name in table.column_names]
    columns = [_present(column, missing) for column in table.columns]
    pairs = list(zip(names, columns, strict=True))
    with_commas = [name for name, column in pairs if _has_decimal_commas(name, column, delimiter)]
    if with_commas:
        warnings.warn(
            f"{path}: the numbers of {', '.join(map(repr, with_commas[:5]))} have decimal commas, and are read so.",
            stacklevel=3,
        )
    replaced = [
        pa.compute.replace_substring(column, ",", ".") if name in with_commas else column for name, column in pairs
    ]
    return pa.table(replaced, names)


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise csv.Error(
            f"line {line} is not UTF-8 text (byte 0x{content[error.start]:02x}). Save it as UTF-8; if it is Latin-1 or "
            "Windows-1252, as older programs write: iconv -f WINDOWS-1252 -t UTF-8 OLD.csv > NEW.csv"
        ) from error


def _has_decimal_commas(name: str, column: Any, delimiter: str) -> bool:
    """Tell whether a column's numbers have decimal commas; raise if they have commas of which that is not clear."""
    pa = pyarrow()

    def all_are(pattern: str) -> bool:
        return pa.compute.all(pa.compute.match_substring_regex(column, pattern)).as_py() is not False

    if not pa.compute.any(pa.compute.match_substring_regex(column, r"^[+-]?[\d.]*,\d")).as_py():
        return False
    if delimiter != "," and all_are(r"^[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?$"):
        return True
    by_commas, by_points = r"\d{1,3}(,\d{3})+(\.\d*)?", r"\d{1,3}(\.\d{3})+(,\d*)?"
    if all_are(rf"^[+-]?({by_commas}|{by_points}|\d*[.,]?\d+)([eE][+-]?\d+)?$"):
        example = next(value for value in column.to_pylist() if value is not None and "," in value)
        raise csv.Error(
            f"column {name!r} has numbers with commas, such as {example!r}, of which it is not clear what they mean. "
            "Write them with a decimal point and without separators of thousands."
        )
    return False


def _present(column: Any, missing: Any) -> Any:
    """Return texts without surrounding blanks, null where they stand for a missing value."""
    pa = pyarrow()
    texts = pa.compute.utf8_trim_whitespace(column)
    return pa.compute.if_else(pa.compute.is_in(texts, missing), pa.scalar(None, pa.string()), texts)
