"""The columns of a table in memory, whatever holds it, and the numbers that a network gets for them."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_array

from slimbayes.data._columns import Category, Column, Number, check_names, column_from, kind_of, numbers_of, spec_of
from slimbayes.data._columns import texts_of as arrow_texts
from slimbayes.data._standardise import mean_and_std
from slimbayes.data._table_file import pyarrow

#: What a text may be where a value is missing.
_MISSING = {"", "?", "NA", "N/A", "na", "n/a", "nan", "NaN", "None", "null", "<NA>"}
#: A column of a table: float64 with NaN where missing, truth values, or an Arrow array of anything else.
Values = Any


class Columns:
    """A table as columns, some rows of which can be taken.

    Args:
        values: Of each column.
        rows: How many.
    """

    def __init__(self, values: list[Values], rows: int) -> None:
        self.values = values
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def take(self, rows: NDArray[np.int64]) -> "Columns":
        """Return some rows."""
        return Columns([v[rows] if isinstance(v, np.ndarray) else v.take(rows) for v in self.values], len(rows))

    def blocks(self, size: int) -> Iterator["Columns"]:
        """Yield so many rows at a time."""
        for begin in range(0, self.rows, size):
            end = min(self.rows, begin + size)
            yield Columns([v[begin:end] for v in self.values], end - begin)

    def with_column(self, number: int, order: NDArray[np.int64]) -> "Columns":
        """Return the table with one column in another order."""
        v = self.values[number]
        moved = v[order] if isinstance(v, np.ndarray) else v.take(order)
        return Columns([*self.values[:number], moved, *self.values[number + 1 :]], self.rows)


def read_columns(X: Any, estimator: Any) -> Columns:
    """Return the columns of an array, a sparse matrix, or a pandas or polars frame.

    Raises:
        ValueError: scikit-learn's, if it is no table, has no rows, or holds infinite or complex numbers.
    """
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        values = [_from_pandas(X.iloc[:, number]) for number in range(X.shape[1])]
    elif hasattr(X, "get_columns"):
        values = [_from_polars(series) for series in X.get_columns()]
    else:
        array = check_array(
            X,
            accept_sparse=("csr", "csc"),
            dtype=None,
            ensure_all_finite="allow-nan",
            estimator=estimator,
            input_name="X",
        )
        if sparse.issparse(array):
            array = array.toarray()
        if array.dtype.kind in "biuf":
            matrix = array if array.dtype.kind == "b" else np.asarray(array, np.float64)
            values = list(matrix.T)
        else:
            values = [_from_objects(column) for column in array.T]
        X = array  # noqa: N806
    if X.shape[0] == 0 or X.shape[1] == 0:
        what, count = ("sample", "shape") if X.shape[0] == 0 else ("feature", "shape")
        raise ValueError(
            f"Found array with 0 {what}(s) ({count}={X.shape}) while a minimum of 1 is required by "
            f"{type(estimator).__name__}."
        )
    for column in values:
        _check_finite(column)
    return Columns(values, X.shape[0])


def check_names_differ(frame: Any) -> None:
    """Raise if two columns of a frame have one name."""
    names = list(frame.columns)
    twice = sorted({str(name) for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ValueError(
            f"Expected the columns of X to have different names, but there are several called {', '.join(twice)}. "
            "Rename them."
        )


def _from_pandas(series: Any) -> Values:
    kind = getattr(series.dtype, "kind", "O")
    if kind == "c":
        raise ValueError("Complex data not supported")
    if kind == "b" and not series.isna().any():
        return series.to_numpy(dtype=bool)
    if kind in "biuf":
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    if kind == "O" and not hasattr(series, "cat"):
        objects = series.astype(object).where(series.notna(), None)
        return _from_objects(objects.to_numpy(dtype=object))
    return _whole(pyarrow().array(series))


def _from_polars(series: Any) -> Values:
    if series.dtype.is_numeric():
        return series.cast(_float64_of_polars()).to_numpy().astype(np.float64)
    arrow = series.to_arrow()
    if pyarrow().types.is_boolean(arrow.type) and not arrow.null_count:
        return series.to_numpy().astype(bool)
    return _whole(arrow)


def _float64_of_polars() -> Any:
    import polars

    return polars.Float64


def _from_objects(objects: NDArray[Any]) -> Values:
    """Return numbers if all are numbers, or texts of numbers; else an Arrow array."""
    given = [value for value in objects.tolist() if not _is_missing(value)]
    if all(isinstance(value, (bool, np.bool_)) for value in given) and len(given) == len(objects):
        return objects.astype(bool)
    try:
        return np.array([np.nan if _is_missing(value) else float(value) for value in objects.tolist()])
    except ValueError:
        pass
    except TypeError:
        if not all(isinstance(value, str) or hasattr(value, "isoformat") for value in given):
            raise  # it names what is no number
    pa = pyarrow()
    values = [None if _is_missing(value) else value for value in objects.tolist()]
    try:
        return _whole(pa.array(values, from_pandas=True))
    except (pa.ArrowException, TypeError):
        return pa.array([None if value is None else str(value) for value in values])


def _is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip() in _MISSING
    return value is None or bool(value != value) or type(value).__name__ in ("NAType", "NaTType")


def _whole(column: Any) -> Any:
    """Return one Arrow array, not chunks; texts that stand for nothing are missing."""
    pa = pyarrow()
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        trimmed = pa.compute.utf8_trim_whitespace(column)
        missing = pa.compute.is_in(trimmed, value_set=pa.array(sorted(_MISSING), trimmed.type))
        return pa.compute.if_else(missing, pa.scalar(None, column.type), column)
    return column


def _check_finite(column: Values) -> None:
    if isinstance(column, np.ndarray) and column.dtype == np.float64:
        with np.errstate(invalid="ignore"):
            if (np.abs(column) > np.finfo(np.float32).max).any():
                raise ValueError("Input X contains infinity or a value too large for dtype('float32').")


class Encoder:
    """What a network gets for the columns of a table: numbers first, then truth values, categories and flags.

    Args:
        columns: How each is read; None for one that had no value in training, which is left out.

    Example:
        >>> table = Columns([np.array([1.0, np.nan, 3.0]), np.array([True, False, True])], 3)
        >>> encoder = Encoder.of(table, ["a", "b"])
        >>> encoder.numbers, encoder.others
        (1, 2)
        >>> encoder(table)
        array([[-1.,  0.,  1.],
               [ 0.,  1.,  0.],
               [ 1.,  0.,  1.]])
    """

    def __init__(self, columns: Sequence[Column | None]) -> None:
        self.columns = list(columns)
        #: Whether there is nothing to predict from, and the network gets a zero.
        self.empty = not any(self.columns)

    @classmethod
    def of(
        cls,
        table: Columns,
        names: Sequence[str],
        weights: NDArray[np.float64] | None = None,
        categorical: Sequence[int] = (),
        max_categories: int = 100,
    ) -> "Encoder":
        """Return the one with the statistics and categories of a table.

        Args:
            table: The training rows.
            names: Of the columns, for messages.
            weights: Of the rows.
            categorical: Columns that are names, whatever they look like.
            max_categories: Of a column; only so many of the most frequent are told apart.
        """
        columns = [
            _column(values, name, weights, number in categorical, max_categories)
            for number, (values, name) in enumerate(zip(table.values, names, strict=True))
        ]
        return cls(columns)

    @property
    def numbers(self) -> int:
        """How many of the features are numbers, which come first."""
        return sum(_is_number(column) for column in self.columns) + self.empty

    @property
    def others(self) -> int:
        """How many other features there are."""
        return sum(column.width - _is_number(column) for column in self.columns if column is not None)

    def __call__(self, table: Columns) -> NDArray[np.float64]:
        """Return the features, ``(rows, numbers + others)``."""
        numbers: list[NDArray[Any]] = [np.zeros((len(table), 1))] if self.empty else []
        others: list[NDArray[Any]] = []
        for column, values in zip(self.columns, table.values, strict=True):
            if column is None:
                continue
            if isinstance(column, Category):
                others.append(column.encode(_texts(values, column.name)))
                continue
            given = _numbers(values, column)
            missing = np.isnan(given)
            scaled = (np.where(missing, column.fill, given) - column.mean) / column.std
            (numbers if _is_number(column) else others).append(scaled[:, None])
            if column.flagged:
                others.append(missing[:, None])
        return np.concatenate([*numbers, *others], axis=1, dtype=np.float64)

    def spec(self) -> list[Any]:
        """Return JSON values from which ``from_spec`` rebuilds it."""
        return [None if column is None else spec_of(column) for column in self.columns]

    @classmethod
    def from_spec(cls, spec: list[Any]) -> "Encoder":
        """Return the one that ``spec`` described."""
        return cls([None if each is None else column_from(each) for each in spec])


def _is_number(column: Column | None) -> bool:
    return column is not None and column.kind in ("number", "date")


def _column(
    values: Values, name: str, weights: NDArray[np.float64] | None, as_text: bool, max_categories: int
) -> Column | None:
    kind = "categorical" if as_text else _kind(values)
    if kind is None:
        return None
    if kind == "categorical":
        texts = _texts(values, name)
        if not as_text and _is_plain_text(values):
            check_names(texts, name)
        return Category.by(name, texts, max_categories, may_drop=True) if (texts != "").any() else None
    given = values.astype(np.float64) if isinstance(values, np.ndarray) else numbers_of(values, kind, name)
    return _number(name, kind, given, weights)


def _kind(values: Values) -> str | None:
    if isinstance(values, np.ndarray):
        if values.dtype == bool:
            return "boolean"
        return None if np.isnan(values).all() else "number"
    if pyarrow().types.is_dictionary(values.type):
        return "categorical"
    return kind_of(values, typed=not _is_plain_text(values))


def _is_plain_text(values: Values) -> bool:
    if isinstance(values, np.ndarray):
        return False
    types = pyarrow().types
    return bool(types.is_string(values.type) or types.is_large_string(values.type))


def _number(name: str, kind: str, values: NDArray[np.float64], weights: NDArray[np.float64] | None) -> Number:
    """Return a column of numbers with the statistics of these; a row of weight 2 counts as two."""
    present = ~np.isnan(values)
    given = values[present]
    if weights is None:
        return Number.by(name, kind, values)
    mean, std = (float(one) for one in weighted_mean_and_std(given, weights[present]))
    flagged = not present.all()
    return (
        Number(name, kind, 0.0, 1.0, mean, flagged)
        if kind == "boolean"
        else Number(name, kind, mean, std, mean, flagged)
    )


def weighted_mean_and_std(values: NDArray[Any], weights: NDArray[np.float64] | None) -> tuple[float, float]:
    """Return the mean and the standard deviation, 1 if all are equal; a value of weight 2 counts as two.

    Example:
        >>> weighted_mean_and_std(np.array([0.0, 1.0]), np.array([1.0, 3.0]))
        (0.75, 0.4330127018922193)
    """
    if weights is None or values.min() == values.max():
        mean, std = mean_and_std(values)
        return float(mean), float(std)
    mean = np.average(values, weights=weights)
    return float(mean), float(np.sqrt(np.average((values - mean) ** 2, weights=weights)))


def _numbers(values: Values, column: Number) -> NDArray[np.float64]:
    if not isinstance(values, np.ndarray):
        return column.values(values)
    if column.kind == "date" and not np.isnan(values.astype(np.float64)).all():
        raise ValueError(f"Column {column.name!r} has numbers, but was trained with dates. Give dates, as in training.")
    return values.astype(np.float64)


def _texts(values: Values, name: str) -> NDArray[Any]:
    if isinstance(values, np.ndarray):
        if values.dtype == bool:
            return np.where(values, "True", "False").astype(object)
        texts = [
            "" if value != value else str(int(value)) if value == int(value) else str(value)
            for value in values.tolist()
        ]
        return np.array(texts, dtype=object)
    if pyarrow().types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return arrow_texts(values, name)
