"""CSV and Parquet files as named columns of Arrow arrays, whole or some rows at a time."""

import codecs
import csv
import io
import itertools
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: What stands for a missing value in a CSV file, besides pandas' and Arrow's usual spellings.
_ALSO_MISSING = ["?", "None", "<NA>"]
_PARQUET = b"PAR1"
#: What is warned of.
COMMAS = "have decimal commas"
#: Bytes of a file that are taken at once; of a CSV file more, if a row does not fit, up to what Arrow can count to.
_BLOCK, _LARGEST_BLOCK = 2**19, 2**30
#: Rows of a Parquet file that are taken at once.
_ROWS = 2**14


class TableFile(NamedTuple):
    """A table as it was read.

    Attributes:
        path: The file.
        columns: Arrow's chunked array of each name.
        typed: Whether the file gives its columns types, as Parquet does; otherwise all are text.
        rows: Where the rows stand in the file; None if all are here.
        decimal_commas: Columns of numbers whose decimal commas have been replaced.
    """

    path: Path
    columns: dict[str, Any]
    typed: bool
    rows: NDArray[np.int64] | None = None
    decimal_commas: tuple[str, ...] = ()


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
        raise ImportError('Tables need pyarrow: pip install "slimbayes[train]", or "slimbayes[sklearn]"') from error
    return pa


class TableReader(NamedTuple):
    """A table that is read some rows at a time, in a memory that does not grow with the file.

    Attributes:
        path: The file.
        names: Of its columns.
        typed: As in ``TableFile``.
        rows: How many there are.
        batches: Reads the columns of these names from the start: Arrow's tables, each of some of the rows.
        decimal_commas: As in ``TableFile``.
    """

    path: Path
    names: list[str]
    typed: bool
    rows: int
    batches: Callable[[Collection[str]], Iterator[Any]]
    decimal_commas: tuple[str, ...] = ()

    def blocks(self, size: int, names: Collection[str]) -> Iterator[TableFile]:
        """Yield ``size`` rows at a time, and the rest at last."""
        begin = 0
        with _reading(self.path):
            for table in _in_blocks(self.batches(names), size):
                rows = np.arange(begin, begin + table.num_rows)
                yield TableFile(self.path, _columns_of(table), self.typed, rows)
                begin += table.num_rows

    def whole(self) -> TableFile:
        """Return all of the table."""
        with _reading(self.path):
            table = pyarrow().concat_tables(list(self.batches(self.names)))
        return TableFile(self.path, _columns_of(table), self.typed, decimal_commas=self.decimal_commas)


def read_table_file(path: Path) -> TableFile:
    r"""Read a CSV or Parquet file; see ``open_table_file``.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "my.csv"
        ...     _ = path.write_text('age,town\n41,"Bath, UK"\n,NA\n')
        ...     columns = read_table_file(path).columns
        >>> {name: column.to_pylist() for name, column in columns.items()}
        {'age': ['41', None], 'town': ['Bath, UK', None]}
    """
    return open_table_file(path).whole()


def open_table_file(path: Path) -> TableReader:
    r"""Open a CSV or Parquet file, told apart by content.

    A CSV file is UTF-8 text with a header, separated by commas, semicolons or tabs, and may be compressed (.gz and so
    on). Between semicolons or tabs, a column of numbers such as 0,5 has decimal commas, and is read so with a warning;
    other numbers with commas, such as 1.234,5 or "1,234", are an error. Blanks around values do not count. Empty
    fields, and the usual spellings such as NA, nan, NULL or ?, are missing values. Whether a column has decimal commas
    depends on all of its values: the file is read once to find out.

    Raises:
        ValueError: The file is broken, or its columns' names are missing or repeated.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "my.csv"
        ...     _ = path.write_text("age\n41\n42\n43\n")
        ...     reader = open_table_file(path)
        ...     blocks = [block.columns["age"].to_pylist() for block in reader.blocks(2, reader.names)]
        >>> reader.rows, blocks
        (3, [['41', '42'], ['43']])
    """
    with _reading(path):
        with path.open("rb") as file:
            typed = file.read(4) == _PARQUET
        return _open_parquet(path) if typed else _open_csv(path)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Let what Arrow says of a broken file name the file."""
    try:
        yield
    except (pyarrow().ArrowException, OSError, UnicodeDecodeError, csv.Error) as error:
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
            raise
        kind = "Parquet" if path.suffix in (".parquet", ".pq") else "CSV"
        said = str(error).partition(" - ")[0].rstrip(".")  # of Python's csv, without advice to programmers
        remedy = "" if "Save it" in said else f" Correct that place, or save it as {kind} again."
        raise ValueError(f"{path} cannot be read as {kind}: {said}.{remedy}") from error


def _check_names(path: Path, names: list[str]) -> None:
    for index, name in enumerate(names):
        if not name.strip():
            raise ValueError(f"{path} has no name for its column {index + 1}. Give it one in the header.")
        if name in names[:index]:
            raise ValueError(f"{path} has two columns called {name!r}. Rename one.")


def _columns_of(table: Any) -> dict[str, Any]:
    return dict(zip(table.column_names, table.columns, strict=True))


def _in_blocks(tables: Iterable[Any], size: int) -> Iterator[Any]:
    """Cut tables into ones of ``size`` rows."""
    concat_tables = pyarrow().concat_tables
    rest: list[Any] = []
    for table in tables:
        rest.append(table)
        if sum(part.num_rows for part in rest) >= size:
            joined = concat_tables(rest)
            whole = joined.num_rows // size * size
            yield from (joined.slice(begin, size) for begin in range(0, whole, size))
            rest = [joined.slice(whole)]
    if sum(part.num_rows for part in rest):
        yield concat_tables(rest)


# ---------------------------------------------------------------------- Parquet


def _open_parquet(path: Path) -> TableReader:
    pa = pyarrow()
    with pa.parquet.ParquetFile(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
    _check_names(path, schema.names)

    def batches(names: Collection[str]) -> Iterator[Any]:
        order = [name for name in schema.names if name in names]
        yield pa.schema([schema.field(name) for name in order]).empty_table()  # there may be no rows
        with pa.parquet.ParquetFile(path, buffer_size=_BLOCK, pre_buffer=False) as file:
            for batch in file.iter_batches(_ROWS, columns=order, use_threads=False):
                yield pa.Table.from_batches([batch]).select(order)

    return TableReader(path, schema.names, True, rows, batches)


# ---------------------------------------------------------------------- CSV


def _open_csv(path: Path) -> TableReader:
    """Open a file of text columns; Arrow's own guesses of types would depend on where its blocks end."""
    pa = pyarrow()
    lines = io.TextIOWrapper(io.BufferedReader(_Csv(path)), "utf-8", newline="\n")
    first = lines.readline()
    delimiter = max(",;\t", key=re.sub('"[^"]*"', "", first).count)
    header = next(csv.reader(itertools.chain([first], lines), delimiter=delimiter), [])
    if not header:
        raise csv.Error("it is empty")
    missing = pa.array([*pa.csv.ConvertOptions().null_values, *_ALSO_MISSING])

    def texts(names: Collection[str] | None = None) -> Iterator[Any]:
        reader = pa.csv.open_csv(
            io.BufferedReader(_Csv(path), block),
            read_options=pa.csv.ReadOptions(block_size=block, use_threads=False),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(column_types=dict.fromkeys(header, pa.string())),
        )
        yield _present(reader.schema.empty_table(), missing, names)  # there may be no rows
        for batch in reader:
            yield _present(pa.Table.from_batches([batch]), missing, names)

    block = _BLOCK
    while True:
        try:
            known = next(texts()).column_names
            _check_names(path, known)
            rows, with_commas = _judge_commas(texts, known, delimiter)
            break
        except pa.ArrowInvalid as error:
            if "straddl" not in str(error) or block >= _LARGEST_BLOCK:
                raise
            block *= 2  # a row must fit
    if with_commas:
        warnings.warn(
            f"{path}: the numbers of {', '.join(map(repr, with_commas[:5]))} {COMMAS}, and are read so.",
            stacklevel=4,
        )

    def batches(names: Collection[str]) -> Iterator[Any]:
        for table in texts(names):
            for index, name in enumerate(table.column_names):
                if name in with_commas:
                    points = pa.compute.replace_substring(table.column(index), ",", ".")
                    table = table.set_column(index, name, points)
            yield table

    return TableReader(path, known, False, rows, batches, tuple(with_commas))


class _Csv(io.RawIOBase):
    """A CSV file's bytes as Arrow wants them.

    They are known to be UTF-8, without a byte order mark and line breaks at the start, and with a line break at the
    end. Compressed files are read as what they hold.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._parts, self._left = self._cleaned(path), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = next(self._parts, b"")
        length = min(len(buffer), len(self._left))
        buffer[:length], self._left = self._left[:length], self._left[length:]
        return length

    @staticmethod
    def _cleaned(path: Path) -> Iterator[bytes]:
        decoder, line, last = codecs.getincrementaldecoder("utf-8-sig")(), 1, ""
        with pyarrow().input_stream(str(path)) as stream:
            content: bytes | None = None
            while content != b"":
                content = stream.read(_BLOCK)
                try:
                    text = decoder.decode(content, final=not content)
                except UnicodeDecodeError as error:
                    line += error.object.count(b"\n", 0, error.start)
                    raise csv.Error(
                        f"line {line} is not UTF-8 text (byte 0x{error.object[error.start]:02x}). Save it as UTF-8; if "
                        "it is Latin-1 or Windows-1252, as older programs write: iconv -f WINDOWS-1252 -t UTF-8 "
                        "OLD.csv > NEW.csv"
                    ) from error
                line += content.count(b"\n")
                text = text if last else text.lstrip("\r\n")
                if text:
                    last = text[-1]
                    yield text.encode()
        if last not in ("", "\n"):
            yield b"\n"


def _judge_commas(
    texts: Callable[[Collection[str]], Iterator[Any]], names: list[str], delimiter: str
) -> tuple[int, list[str]]:
    """Return the number of rows, and the names of columns whose numbers have decimal commas.

    Raises:
        csv.Error: A column of numbers has commas of which that is not clear.
    """
    compute = pyarrow().compute

    def any_is(column: Any, pattern: str) -> bool:
        return compute.any(compute.match_substring_regex(column, pattern)).as_py() is True

    def all_are(column: Any, pattern: str) -> bool:
        return compute.all(compute.match_substring_regex(column, pattern)).as_py() is not False

    rows, suspects = 0, set()
    for table in texts(names):
        rows += table.num_rows
        suspects |= {name for name in names if name not in suspects and any_is(table.column(name), r"^[+-]?[\d.]*,\d")}
    if not suspects:
        return rows, []
    by_commas, by_points = r"\d{1,3}(,\d{3})+(\.\d*)?", r"\d{1,3}(\.\d{3})+(,\d*)?"
    decimal, grouped = set(suspects) if delimiter != "," else set(), set(suspects)
    examples: dict[str, str] = {}
    for table in texts(suspects):
        for name in suspects:
            column = table.column(name)
            if not all_are(column, r"^[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?$"):
                decimal.discard(name)
            if not all_are(column, rf"^[+-]?({by_commas}|{by_points}|\d*[.,]?\d+)([eE][+-]?\d+)?$"):
                grouped.discard(name)
            if name not in examples:
                commas = column.filter(compute.match_substring(column, ","))
                examples |= {name: commas[0].as_py()} if len(commas) else {}
    for name in names:
        if name in grouped - decimal:
            raise csv.Error(
                f"column {name!r} has numbers with commas, such as {examples[name]!r}, of which it is not clear what "
                "they mean. Write them with a decimal point and without separators of thousands."
            )
    return rows, [name for name in names if name in decimal]


def _present(table: Any, missing: Any, names: Collection[str] | None) -> Any:
    """Return columns whose names and texts have no surrounding blanks, null where they stand for a missing value."""
    pa = pyarrow()
    known, columns = [], []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if names is None or name.strip() in names:
            texts = pa.compute.utf8_trim_whitespace(column)
            known.append(name.strip())
            columns.append(pa.compute.if_else(pa.compute.is_in(texts, missing), pa.scalar(None, pa.string()), texts))
    return pa.table(columns, known)
