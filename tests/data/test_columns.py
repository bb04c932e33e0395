"""Columns: kinds, numbers and categories, against values worked out by hand and scikit-learn's encoders."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from slimbayes.data._columns import Category, Number, column_from, kind_of, numbers_of, spec_of, texts_of

DAY = datetime.date(1970, 1, 11)
NOON = datetime.datetime(1970, 1, 11, 12)


@pytest.mark.parametrize(
    ("texts", "kind", "numbers"),
    [
        (["1", " -2.5 ", "1e3", None], "number", [1, -2.5, 1000, np.nan]),
        (["0", "1"], "number", [0, 1]),
        (["true", "FALSE", "True", None], "boolean", [1, 0, 1, np.nan]),
        (["1970-01-02", "1970-01-11 12:00:00", None], "date", [1, 10.5, np.nan]),
        (["1970-01-02T00:00:00Z", "1970-01-02T12:00:00+06:00"], "date", [1, 1.25]),
        (["1969-12-31"], "date", [-1]),
        (["a", "1"], "categorical", None),
        (["yes", "no"], "categorical", None),
        (["1,5"], "categorical", None),
        (["1970-01-02", "1970-01-02T00:00:00Z"], "categorical", None),  # which day is not certain
        ([None, None], None, None),
        ([], None, None),
    ],
)
def test_text_is_what_all_of_it_can_be_read_as(texts, kind, numbers):
    column = pa.chunked_array([texts], pa.string())
    assert kind_of(column, typed=False) == kind
    if numbers is not None:
        np.testing.assert_array_equal(numbers_of(column, kind, "a"), numbers)


@pytest.mark.parametrize(
    ("values", "type_", "kind", "numbers"),
    [
        ([1, None], pa.int8(), "number", [1, np.nan]),
        ([2**62 + 1], pa.int64(), "number", [2.0**62]),
        ([0.5, float("nan")], pa.float32(), "number", [0.5, np.nan]),
        ([decimal.Decimal("1.50")], pa.decimal128(5, 2), "number", [1.5]),
        ([True, None], pa.bool_(), "boolean", [1, np.nan]),
        ([DAY, None], pa.date32(), "date", [10, np.nan]),
        ([DAY], pa.date64(), "date", [10]),
        ([NOON], pa.timestamp("s"), "date", [10.5]),
        ([NOON], pa.timestamp("ns"), "date", [10.5]),
        ([NOON], pa.timestamp("ms", "Europe/Berlin"), "date", [10.5]),
        (["1", "2"], pa.string(), "categorical", [1, 2]),  # that a column of text could be numbers is not asked
        (["1", "2"], pa.dictionary(pa.int8(), pa.string()), "categorical", [1, 2]),
    ],
)
def test_types_of_parquet(values, type_, kind, numbers):
    column = pa.chunked_array([pa.array(values, type_)])
    assert kind_of(column, typed=True) == kind
    np.testing.assert_array_equal(numbers_of(column, "number" if kind == "categorical" else kind, "a"), numbers)


@pytest.mark.parametrize(
    ("column", "kind", "words"),
    [
        (pa.array(["1", "x1"]), "number", ["'age'", "number", "'x1'"]),
        (pa.array(["maybe"]), "boolean", ["'age'", "boolean", "maybe"]),
        (pa.array(["31.12.1999"]), "date", ["'age'", "date", "31.12.1999"]),
        (pa.array([[1.0]]), "number", ["'age'", "list"]),
        (pa.array([DAY]), "number", ["'age'", "date32"]),
    ],
)
def test_what_cannot_be_read_is_named(column, kind, words):
    with pytest.raises(ValueError, match="cannot be read") as error:
        numbers_of(column, kind, "age")
    for word in words:
        assert word in str(error.value)


def test_texts():
    column = pa.array([" a", "", None, "b\u00a0", "Zürich", "東京"])
    assert texts_of(column, "a").tolist() == ["a", "", "", "b", "Zürich", "東京"]
    assert texts_of(pa.array([1, 2, None]), "a").tolist() == ["1", "2", ""]
    with pytest.raises(ValueError, match="'a' cannot be read as text; list it in `ignore`"):
        texts_of(pa.array([[1]]), "a")


@pytest.mark.parametrize("text", ["inf", "-Infinity", "1e39", "1e400"])
def test_what_single_precision_cannot_hold_is_named_and_not_filled_in(text):
    column = pa.chunked_array([["1", None, text, "2"]], pa.string())
    with pytest.raises(
        ValueError, match=rf"Column 'a' has '{text}' in row 2, counted from 0: infinite.*leave the field"
    ):
        numbers_of(column, "number", "a")
    with pytest.raises(ValueError, match="in row 7"):
        numbers_of(column, "number", "a", np.array([4, 5, 7, 8]))


def test_numbers_are_standardised_as_scikit_learn_does():
    values = np.random.default_rng(0).lognormal(size=50)
    number = Number.by("a", "number", values)
    later = np.array([-3.0, 0.0, 70.0])
    expected = StandardScaler().fit(values[:, None]).transform(later[:, None])
    np.testing.assert_allclose(number.encode(later), expected, rtol=1e-6)
    assert number.width == 1


def test_missing_numbers_are_the_mean_and_flagged_if_training_had_any():
    # Mean 2 and standard deviation 1 of the values that are there.
    values = np.array([1.0, np.nan, 3.0])
    number = Number.by("a", "number", values)
    assert number.encode(values).tolist() == [[-1, 0], [0, 1], [1, 0]]
    assert number.width == 2
    without = Number.by("a", "number", np.array([1.0, 3.0]))
    assert without.encode(np.array([np.nan, 4.0])).tolist() == [[0], [2]]


def test_truth_values_stay_and_their_gaps_are_the_mean():
    boolean = Number.by("a", "boolean", np.array([1.0, 1.0, 0.0, 1.0]))
    assert boolean.encode(np.array([1.0, 0.0, np.nan])).tolist() == [[1], [0], [0.75]]


@pytest.mark.parametrize("value", [0.1, 0.0, 1e30, -7.0])
def test_a_constant_is_only_shifted(value):
    number = Number.by("a", "number", np.full(10, value))
    assert number.encode(np.array([value, value + 1])).tolist() == [[0], [np.float32(value + 1 - value)]]


def test_categories_as_scikit_learn_has_them_and_one_column_for_the_rest():
    values = np.array(["b", "a", "", "b", "ö"], dtype=object)
    category = Category.by("pet", values, limit=10, may_drop=False)
    assert category.categories == ["a", "b", "ö"]
    later = np.array(["ö", "zebra", "", "a"], dtype=object)
    encoder = OneHotEncoder(categories=[["a", "b", "ö"]], handle_unknown="ignore", sparse_output=False)
    known = encoder.fit([["a"], ["b"], ["ö"]]).transform(later[:, None])
    np.testing.assert_array_equal(category.encode(later), np.column_stack([known, [0, 1, 1, 0]]))
    assert category.encode(later[:0]).shape == (0, category.width)


def test_too_many_categories():
    values = np.array([*"aabbbcd", ""], dtype=object)
    with pytest.raises(ValueError, match="'pet' has 4 different texts, such as 'a'.*`ignore`.*`categorical`.*raise"):
        Category.by("pet", values, limit=2, may_drop=False)
    assert Category.by("pet", values, limit=2, may_drop=True).categories == ["a", "b"]
    assert Category.by("pet", values, limit=3, may_drop=True).categories == ["a", "b", "c"]  # of equals the first


@pytest.mark.parametrize(
    "column", [Number("a", "date", 1.0, 2.0, 1.0, True), Category("b", ["x", "ü"])], ids=["number", "category"]
)
def test_a_column_survives_its_spec(column):
    assert column_from(spec_of(column)) == column


@pytest.mark.parametrize(
    ("categories", "name", "position"),
    [
        (["3", "7"], "7.0", 1),
        (["3.0", "7.0"], "7", 1),
        (["-3", "7"], "-3.00", 0),
        (["7", "7.0"], "7.0", 1),
        (["7", "7.0"], "7", 0),
        (["3", "7"], "7.01", 2),
        (["3", "7"], "07", 2),
        (["v3", "v7"], "v7.0", 2),
        (["3", "7"], "", 2),
    ],
)
def test_codes_that_pandas_made_floats_are_the_same(categories, name, position):
    assert Category("code", categories).encode(np.array([name], dtype=object)).argmax() == position
