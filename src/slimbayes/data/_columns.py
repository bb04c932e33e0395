"""Typed columns of a table, and the numbers that a network gets for them: statistics are the training rows'."""

import re
from bisect import bisect_left
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from slimbayes.data._standardise import mean_and_std
from slimbayes.data._table_file import pyarrow

#: Kinds of columns that are numbers to a network.
NUMBERS = ("number", "boolean", "date")
#: Whole numbers of at most so many different values are names, unless the user says otherwise.
MOST_NUMBERED_NAMES = 10
_WRITTEN = {"number": r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", "date": r"\d{4}-\d\d-\d\d.*"}
_DAY = 86_400_000_000.0  # microseconds
_ZONE = r":.*(Z|[+-]\d\d:?\d\d)$"


@dataclass(frozen=True)
class Number:
    """A number, a truth value (0 or 1), or a date (days since 1970): standardised, with missing values filled.

    Attributes:
        name: Of the column.
        kind: ``"number"``, ``"boolean"`` or ``"date"``.
        mean: Subtracted; 0 for truth values.
        std: Divided by; 1 for truth values.
        fill: Stands for a missing value: the mean.
        flagged: Whether a second column says which values were missing. It does where training had any.

    Example:
        >>> Number("age", "number", mean=40.0, std=10.0, fill=40.0, flagged=True).encode(np.array([50.0, np.nan]))
        array([[1., 0.],
               [0., 1.]], dtype=float32)
    """

    name: str
    kind: str
    mean: float
    std: float
    fill: float
    flagged: bool

    @classmethod
    def by(cls, name: str, kind: str, values: NDArray[np.float64]) -> "Number":
        """Return the one with the statistics of these values, NaN where missing; some must not be."""
        present = values[~np.isnan(values)]
        mean, std = (float(one) for one in mean_and_std(present))
        flagged = len(present) < len(values)
        if kind == "boolean":
            return cls(name, kind, 0.0, 1.0, float(present.mean()), flagged)
        return cls(name, kind, mean, std, mean, flagged)

    @property
    def width(self) -> int:
        """Number of features."""
        return 1 + self.flagged

    def values(self, column: Any, rows: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """Return the numbers in an Arrow array, NaN where missing; see ``numbers_of``."""
        return numbers_of(column, self.kind, self.name, rows)

    def encode(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return ``(rows, 1)``, or ``(rows, 2)`` with the flag."""
        missing = np.isnan(values)
        scaled = (np.where(missing, self.fill, values) - self.mean) / self.std
        return np.stack([scaled, missing] if self.flagged else [scaled], 1).astype(np.float32)


@dataclass(frozen=True)
class Category:
    """One of several names: one column for each, and a last one for a missing value or any other name.

    Codes that are whole numbers may be written with a point: 7.0 is 7, unless both were trained on.

    Attributes:
        name: Of the column.
        categories: The names.

    Example:
        >>> Category("pet", ["cat", "dog"]).encode(np.array(["dog", "owl"]))
        array([[0., 1., 0.],
               [0., 0., 1.]], dtype=float32)
    """

    kind: ClassVar[str] = "categorical"
    name: str
    categories: list[str]

    @classmethod
    def by(cls, name: str, values: NDArray[Any], limit: int, may_drop: bool) -> "Category":
        """Return the one for the names among these values, in order.

        Args:
            name: Of the column.
            values: Names; empty where missing.
            limit: The most categories that there may be.
            may_drop: Whether to keep the most frequent ones if there are more; otherwise that is an error.
        """
        found, counts = np.unique(values[values != ""], return_counts=True)
        if len(found) > limit and not may_drop:
            raise ValueError(
                f"Column {name!r} has {len(found)} different texts, such as {str(found[0])!r}, more than "
                f"`max_categories` = {limit}. List it in `ignore` to leave it out, or in `categorical` to keep the "
                f"{limit} most frequent and take the rest as one, or raise `max_categories`."
            )
        most = np.sort(np.argsort(-counts, kind="stable")[:limit])
        return cls(name, found[most].tolist())

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.categories) + 1

    def values(self, column: Any, rows: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """Return the names in an Arrow array, empty where missing; any name is valid."""
        return texts_of(column, self.name)

    def encode(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return ``(rows, categories + 1)``, a single 1 in each row."""
        exact = {category: index for index, category in enumerate(self.categories)}
        position, other = {_whole(category): index for category, index in exact.items()} | exact, len(exact)
        found, rows = np.unique(values, return_inverse=True)
        positions = [position.get(name, position.get(_whole(name), other)) for name in found.tolist()]
        return np.eye(other + 1, dtype=np.float32)[np.array(positions, dtype=np.int64)[rows]]


def _whole(code: str) -> str:
    """Return 7 for 7.0: pandas writes whole numbers so where a column also has missing ones."""
    return re.sub(r"^(-?\d+)\.0*$", r"\1", code)


Column = Number | Category


def column_from(spec: dict[str, Any]) -> Column:
    """Return the column that ``spec_of`` described.

    Example:
        >>> column_from({"kind": "categorical", "name": "pet", "categories": ["cat"]})
        Category(name='pet', categories=['cat'])
    """
    if spec["kind"] == "categorical":
        return Category(spec["name"], list(spec["categories"]))
    return Number(**spec)


def spec_of(column: Column) -> dict[str, Any]:
    """Return JSON values from which ``column_from`` rebuilds a column."""
    return {"kind": column.kind, **asdict(column)}


def kind_of(column: Any, typed: bool) -> str | None:
    """Return ``"number"``, ``"boolean"``, ``"date"`` or ``"categorical"``; None if all values are missing.

    Args:
        column: An Arrow array.
        typed: Whether to go by its type; otherwise it is text, and is what all of it can be read as.

    Example:
        >>> pa = pyarrow()
        >>> [kind_of(pa.array(texts), typed=False) for texts in (["1", "2.5"], ["True", None], ["1999-12-31"], ["a"])]
        ['number', 'boolean', 'date', 'categorical']
    """
    if column.null_count == len(column):
        return None
    if not typed:
        return next((kind for kind in NUMBERS if _can_be(column, kind)), "categorical")
    types = pyarrow().types
    if types.is_boolean(column.type):
        return "boolean"
    if types.is_integer(column.type) or types.is_floating(column.type) or types.is_decimal(column.type):
        return "number"
    if types.is_date(column.type) or types.is_timestamp(column.type):
        return "date"
    return "categorical"


def numbers_of(column: Any, kind: str, name: str, rows: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
    """Return an Arrow array as numbers, NaN where missing.

    Args:
        column: The array.
        kind: ``"number"``, ``"boolean"`` or ``"date"``.
        name: Of the column, for messages.
        rows: Where its values stand in the file, if some were left out.

    Raises:
        ValueError: Some value is none of the kind, or is infinite, or too large for float32.

    Example:
        >>> numbers_of(pyarrow().array(["1970-01-03", None]), "date", "when")
        array([ 2., nan])
    """
    try:
        values = np.asarray(_cast(column, kind), np.float64)
    except pyarrow().ArrowException as error:
        where = ""
        if _can_be(column[:0], kind):  # it is not its type
            first = bisect_left(range(len(column)), True, key=lambda row: not _can_be(column[: row + 1], kind))
            where = f" in row {first if rows is None else rows[first]}, counted from 0"
        raise ValueError(
            f"Column {name!r} cannot be read as a {kind}, as which it was trained{where}: {error}"
        ) from error
    wrong = np.flatnonzero(np.abs(values) > np.finfo(np.float32).max)
    if len(wrong):
        row = wrong[0] if rows is None else rows[wrong[0]]
        raise ValueError(
            f"Column {name!r} has {column[int(wrong[0])].as_py()!r} in row {row}, counted from 0: infinite, or too "
            "large for single precision. Correct it, or leave the field empty if the value is missing."
        )
    return values


def texts_of(column: Any, name: str) -> NDArray[Any]:
    """Return an Arrow array as texts without surrounding blanks, empty where missing.

    Example:
        >>> texts_of(pyarrow().array([" a", None, "b"]), "letter").tolist()
        ['a', '', 'b']
    """
    pa = pyarrow()
    try:
        texts = pa.compute.utf8_trim_whitespace(column.cast(pa.large_string()))
    except pa.ArrowException as error:
        raise ValueError(f"Column {name!r} cannot be read as text; list it in `ignore`. {error}") from error
    return np.array(texts.fill_null("").to_pylist(), dtype=object)  # not NumPy's strings, all as long as the longest


#: Numbers that no program reads as such: 12%, $5, 1'000, 1 000, or with the minus sign of typesetters.
_DRESSED = re.compile(r"[-+\u2212]?\s?[$€£¥]?\s?[-+\u2212]?\d+(['\u2019\s]\d{3})*(\.\d+)?\s?[%$€£¥]?")


def check_names(texts: NDArray[Any], name: str, rows: NDArray[np.int64] | None = None) -> None:
    """Raise if a column that is read as names is one of numbers, or dates, but for a few values, such as 12%.

    A few whole numbers are as good as names. So are a few numbers with percent signs or the like.

    Args:
        texts: The column.
        name: Its name.
        rows: Where its values stand in the file, if some were left out.
    """
    found, where = np.unique(texts[texts != ""], return_index=True)
    dressed = [text for text in found if _DRESSED.fullmatch(text) and not re.fullmatch(_WRITTEN["number"], text)]
    if len(dressed) > max(MOST_NUMBERED_NAMES, len(found) // 2):
        raise ValueError(
            f"Column {name!r} has numbers such as {str(dressed[0])!r}, which cannot be read. Write them with digits, "
            f"- and a decimal point alone, or list {name!r} in `categorical` if they are names."
        )
    for kind, written in _WRITTEN.items():
        right = np.array([bool(re.fullmatch(written, text, re.ASCII)) for text in found], dtype=bool)
        if kind == "date":  # which may look like one and be none, such as 2020-13-01
            right[right] = [_can_be(pyarrow().array([text]), kind) for text in found[right].tolist()]
        few = kind == "number" and right.sum() <= MOST_NUMBERED_NAMES and all(map(str.isdigit, found[right]))
        if 0 < (~right).sum() < right.sum() and not few:
            first = np.flatnonzero(texts != "")[where[~right].min()]
            raise ValueError(
                f"Column {name!r} has {str(texts[first])!r} in row {first if rows is None else rows[first]}, counted "
                f"from 0, but most of its values are {kind}s. Correct it, leave the field empty if the value is "
                f"missing, or list {name!r} in `categorical` if all are names."
            )


def _can_be(column: Any, kind: str) -> bool:
    try:
        _cast(column, kind)
    except pyarrow().ArrowException:
        return False
    return True


def _cast(column: Any, kind: str) -> Any:
    """Return Arrow's float64, with dates in days; raise an Arrow exception if a value is something else."""
    pa = pyarrow()
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _is_text(column):
        column = pa.compute.utf8_trim_whitespace(column)
    if kind == "number":
        return column.cast(pa.float64(), safe=False)
    if kind == "boolean":
        return column.cast(pa.bool_()).cast(pa.float64())
    moments = column.cast(pa.timestamp("us", "UTC" if has_zones(column) else None), safe=False)
    days = moments.cast(pa.int64()).cast(pa.float64(), safe=False)
    return pa.compute.divide(days, _DAY)


def has_zones(column: Any) -> bool | None:
    """Tell whether texts of dates say their time zones, which all must do or none; None if there are no texts.

    Example:
        >>> has_zones(pyarrow().array([None, "1999-12-31T12:00Z"])), has_zones(pyarrow().array(["1999-12-31"]))
        (True, False)
    """
    if not _is_text(column) or column.null_count == len(column):
        return None
    compute = pyarrow().compute
    return bool(compute.any(compute.match_substring_regex(compute.utf8_trim_whitespace(column), _ZONE)).as_py())


def _is_text(column: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_string(column.type) or types.is_large_string(column.type))
