"""CSV and Parquet tables: worked out by hand, and by scikit-learn."""

import csv
import datetime
import gzip
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from slimbayes.data import _table_file as table_file
from slimbayes.data._table_file import read_table_file
from slimbayes.data.folders import MissingData
from slimbayes.data.preparation import get_preparation
from slimbayes.data.table import load_table

# Training rows are the first four; the statistics must not know of 1000, nor of the tapir.
CSV = """part,id,age,member,since,"pet, if any",y
train,1,10,true,1970-01-01,dog,1.0
train,2,,false,1970-01-03,"cat, black",3.0
train,3,30,true,1970-01-05,dog,1.0
train,4,20,true,1970-01-03,,3.0
val,5,1000,,,Tapir,5.0
test,6,,false,1970-01-13,"cat, black",2.0
"""
AGE = np.std([10, 30, 20])
DAYS = np.std([0, 2, 4, 2])
# age, age missing, member, since, cat, dog, other
ROWS = {
    "train": [
        [(10 - 20) / AGE, 0, 1, (0 - 2) / DAYS, 0, 1, 0],
        [0, 1, 0, 0, 1, 0, 0],
        [(30 - 20) / AGE, 0, 1, (4 - 2) / DAYS, 0, 1, 0],
        [0, 0, 1, 0, 0, 0, 1],
    ],
    "validation": [[(1000 - 20) / AGE, 0, 0.75, 0, 0, 0, 1]],
    "test": [[0, 1, 0, (12 - 2) / DAYS, 1, 0, 0]],
}
HAND = {"target": "y", "task": "gaussian", "ignore": "id", "split_column": "part"}


def write(folder, text, name="my.csv"):
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def load(folder, text, **options):
    return load_table(write(folder, text), path="my.csv", **options)


def assert_is_hand_computed(data):
    for part, rows in ROWS.items():
        examples = getattr(data, part)
        np.testing.assert_allclose(examples.inputs[0], rows, rtol=1e-6, atol=1e-7)
        assert data.preparation(*examples.inputs) == examples.inputs
    assert data.train.targets.tolist() == [-1, 1, -1, 1]  # mean 2, standard deviation 1
    assert (data.validation.targets.item(), data.test.targets.item()) == (3, 0)
    assert (data.task.likelihood, data.task.outputs, data.task.input_shape) == ("gaussian", 1, (7,))
    assert (data.task.target_mean, data.task.target_std) == (2, 1)


VARIANTS = {
    "as is": lambda text: text,
    "byte order mark": lambda text: "\ufeff" + text,
    "Windows": lambda text: text.replace("\n", "\r\n"),
    "no last line end": lambda text: text.rstrip("\n"),
    "spellings of missing": lambda text: text.replace("2,,false", "2,NA,false").replace("1000,,,", "1000,?,nan,"),
    "quotes": lambda text: text.replace(",dog,", ',"dog",').replace("2,,false", '2,"",false'),
    "blanks": lambda text: text.replace(",dog,", ", dog ,").replace(",10,", ", 10,"),
    "nothing but blanks": lambda text: text.replace("2,,false", "2,  ,false").replace("1000,,,", "1000,\t, ,"),
    "blanks around missing": lambda text: text.replace("2,,false", "2, NA,false").replace("1000,,,", "1000, ?,nan ,"),
}


@pytest.mark.parametrize("change", VARIANTS.values(), ids=VARIANTS)
def test_a_table_by_hand(change, tmp_path):
    assert_is_hand_computed(load(tmp_path, change(CSV), **HAND))


def test_separators_and_compression(tmp_path):
    text = CSV.replace('"pet, if any"', "pet").replace('"cat, black"', "cat")
    for separator in ";\t":
        assert_is_hand_computed(load(tmp_path, text.replace(",", separator), **HAND))
    write(tmp_path, gzip.compress(CSV.encode()), "a.csv.gz")
    assert_is_hand_computed(load_table(tmp_path, path="a.csv.gz", **HAND))


def parquet(path):
    day = datetime.date.fromisoformat
    days = [None if text is None else day(f"1970-01-{text}") for text in ("01", "03", "05", "03", None, "13")]
    cat = "cat, black"
    table = pa.table(
        {
            "y": pa.array([1, 3, 1, 3, 5, 2], pa.float32()),
            "part": ["train"] * 4 + ["validation", "TEST"],
            "id": list(range(6)),
            "age": pa.array([10, None, 30, 20, 1000, None]),
            "member": [True, False, True, True, None, False],
            "since": pa.array(days),
            "pet, if any": pa.array(["dog", cat, "dog", "", "Tapir", cat]).dictionary_encode(),
        }
    )
    pq.write_table(table, path)


def test_parquet_and_either_file_predicts_for_the_other(tmp_path):
    parquet(tmp_path / "a.parquet")
    data = load_table(tmp_path, path="a.parquet", **HAND)
    assert_is_hand_computed(data)
    write(tmp_path, CSV)
    from_csv = load_table(tmp_path, path="my.csv", **HAND)
    assert from_csv.preparation.spec() == data.preparation.spec()
    every_row = np.concatenate(list(ROWS.values()))
    for name in ("a.parquet", "my.csv"):
        np.testing.assert_allclose(data.preparation.read(tmp_path / name).inputs[0], every_row, rtol=1e-6, atol=1e-7)


def test_prediction_from_other_columns_and_orders(tmp_path):
    data = load(tmp_path, CSV, **HAND)
    preparation = get_preparation(json.loads(json.dumps(data.preparation.spec(), allow_nan=False)))
    header = 'extra,"pet, if any",since,member,age\n'
    write(tmp_path, header + "x,dog,1970-01-01,TRUE,10\nx,Hund,,,\n", "new.csv")
    raw = preparation.read(tmp_path / "new.csv")
    np.testing.assert_allclose(raw.inputs[0], [ROWS["train"][0], [0, 1, 0.75, 0, 0, 0, 1]], rtol=1e-6)
    assert raw.inputs[0].dtype == torch.float32
    assert raw.names == ["0", "1"]
    write(tmp_path, header, "new.csv")
    assert preparation.read(tmp_path / "new.csv").inputs[0].shape == (0, 7)
    write(tmp_path, header.replace("since", "Since") + "x,dog,1970-01-01,TRUE,10\n", "new.csv")
    with pytest.raises(ValueError, match=r"new.csv lacks the column 'since'.* nearest that it has is 'Since'"):
        preparation.read(tmp_path / "new.csv")
    write(tmp_path, header + "x,dog,yesterday,TRUE,10\n", "new.csv")
    with pytest.raises(ValueError, match=r"new.csv: Column 'since' cannot be read as a date.*yesterday"):
        preparation.read(tmp_path / "new.csv")


def test_against_scikit_learn(tmp_path):
    generator = np.random.default_rng(0)
    numbers, letters = generator.normal(5, 3, (200, 2)), generator.choice(list("abcdeé"), 200)
    answers = np.where(numbers[:, 0] > 5, "big", "small")
    lines = [f"{a!r},{b!r},{c},{y}\n" for (a, b), c, y in zip(numbers.tolist(), letters, answers, strict=True)]
    data = load(tmp_path, "a,b,c,y\n" + "".join(lines), target="y", seed=3)
    assert (len(data.train), len(data.validation), len(data.test)) == (140, 20, 40)
    assert data.task.classes == ("big", "small")
    all_rows = data.preparation.read(tmp_path / "my.csv").inputs[0]
    number = {row.numpy().tobytes(): index for index, row in enumerate(all_rows)}
    parts = [
        [number[row.numpy().tobytes()] for row in part.inputs[0]] for part in (data.train, data.validation, data.test)
    ]
    assert sorted(np.concatenate(parts).tolist()) == list(range(200))
    train = parts[0]
    scaled = StandardScaler().fit(numbers[train]).transform(numbers)
    encoded = OneHotEncoder(sparse_output=False).fit(letters[train, None]).transform(letters[:, None])
    np.testing.assert_allclose(all_rows, np.column_stack([scaled, encoded, np.zeros(200)]), rtol=1e-4, atol=1e-6)
    for part, rows in zip((data.train, data.validation, data.test), parts, strict=True):
        assert part.targets.tolist() == (answers[rows] == "small").astype(int).tolist()
        assert abs(part.targets.double().mean().item() - (answers == "small").mean()) < 0.05


@pytest.mark.parametrize(
    ("values", "options", "likelihood", "classes"),
    [
        (["no", "yes"], {}, "categorical", ("no", "yes")),
        (["0", "1"], {}, "categorical", ("0", "1")),
        (["10", "9"], {}, "categorical", ("9", "10")),
        (["10", "9"], {"categorical": "y"}, "categorical", ("10", "9")),
        (["007", "7"], {"categorical": ["y"]}, "categorical", ("007", "7")),
        (["False", "TRUE"], {}, "categorical", ("false", "true")),
        (["no", "yes"], {"task": "bernoulli"}, "bernoulli", ("no", "yes")),
        (["1.5", "2.5"], {"task": "categorical"}, "categorical", ("1.5", "2.5")),
        (["1.5", "2.5"], {}, "gaussian", None),
        (["0", "1"], {"task": "gaussian"}, "gaussian", None),
        ([str(n) for n in range(11)], {}, "gaussian", None),
        (["0", "3"], {"task": "poisson"}, "poisson", None),
        (["2001-01-01", "2002-01-01"], {}, "gaussian", None),
        (["2002-01-01", "2001-01-01"], {"task": "categorical"}, "categorical", ("2001-01-01", "2002-01-01")),
        (["Łódź", "東京, 日本"], {}, "categorical", ("Łódź", "東京, 日本")),
    ],
)
def test_tasks(values, options, likelihood, classes, tmp_path):
    rows = [(n, values[n % len(values)]) for n in range(60)]
    data = load(tmp_path, "x,y\n" + "".join(f'{n},"{y}"\n' for n, y in rows), target="y", **options)
    assert (data.task.likelihood, data.task.classes) == (likelihood, classes)
    assert data.task.outputs == (len(classes) if likelihood == "categorical" else 1)
    assert data.train.targets.dtype == (torch.float32 if likelihood == "gaussian" else torch.int64)
    mean, std = data.train.inputs[0].new_tensor([column_of(data, "x").mean, column_of(data, "x").std])
    for x, target in zip((data.train.inputs[0][:, 0] * std + mean).tolist(), data.train.targets.tolist(), strict=True):
        if classes is not None:
            assert classes[target].lower() == values[round(x) % len(values)].lower()


def column_of(data, name):
    return next(column for column in data.preparation.columns if column.name == name)


def test_rows_without_a_target_are_dropped_with_a_warning(tmp_path):
    text = "x,y\n" + "1,a\n2,b\n3,\n4,NA\n5,a\n6,b\n"
    with pytest.warns(UserWarning, match="my.csv: dropped 2 rows without a target 'y'"):
        data = load(tmp_path, text, target="y", validation=0, test=0)
    assert len(data.train) == 4
    assert column_of(data, "x").mean == 3.5
    with pytest.warns(UserWarning, match="dropped 1 rows"):
        assert load(tmp_path, "x,y\n1,\n2,0.5\n3,1.5\n", target="y", validation=0, test=0).task.target_mean == 1.0
    with (
        pytest.warns(UserWarning, match="dropped 1 rows"),
        pytest.raises(ValueError, match=r"my\.csv: Column 'x' has 'inf' in row 2"),
    ):
        load(tmp_path, "x,y\n1,\n2,0.5\ninf,1.5\n", target="y", validation=0, test=0)


@pytest.mark.filterwarnings("ignore:.*dropped")
@pytest.mark.parametrize("cell", ["inf", "1e400"])
def test_an_infinite_target_is_an_error_too(tmp_path, cell):
    with pytest.raises(ValueError, match=rf"my\.csv: Column 'y' has '{cell}' in row 1"):
        load(tmp_path, f"x,y\n2,0.5\n3,{cell}\n1,2.5\n", target="y", validation=0, test=0)


def test_columns_without_a_training_value_are_left_out_with_a_warning(tmp_path):
    text = "p,x,e,f,g,y\n" + "train,1,,,,a\ntrain,2,,,,b\ntest,3,,5,t,a\n"
    with pytest.warns(UserWarning, match="left out column") as caught:
        data = load(tmp_path, text, target="y", split_column="p")
    assert [str(one.message).split("'")[1] for one in caught] == ["e", "f", "g"]
    assert [column.name for column in data.preparation.columns] == ["x"]


def test_codes_and_rare_texts(tmp_path):
    text = "zip,y\n" + "".join(f"0{n % 3},{n}.5\n" for n in range(30)) + "07,1\n"
    data = load(tmp_path, text, target="y", categorical="zip", max_categories=2, validation=0, test=0)
    assert column_of(data, "zip").categories == ["00", "01"]
    assert data.train.inputs[0].sum(0).tolist() == [10, 10, 11]
    names = "name,y\n" + "".join(f"name {n},{n}.5\n" for n in range(30))
    with pytest.raises(ValueError, match="'name' has 21 different texts.*`max_categories` = 20"):
        load(tmp_path, names, target="y", max_categories=20)


def test_without_a_seed_rows_keep_their_order(tmp_path):
    text = "x,y\n" + "".join(f"{n},{'ab'[n % 2]}\n" for n in range(10))
    data = load(tmp_path, text, target="y", seed=None)
    assert data.train.targets.tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert data.train.inputs[0][:, 0].diff().min() > 0


SMALL = "x,z,y\n1,5,a\n2,6,b\n3,7,a\n4,8,b\n"
WRONG = {
    "target": (SMALL, {"target": "Y"}, ["`target`", "'Y'"]),
    "near target": (SMALL.replace("y", "answer", 1), {"target": "anwser"}, ["Did you mean 'answer'"]),
    "ignored": (SMALL, {"ignore": ["x", "w"]}, ["`ignore`", "'w'"]),
    "ignored target": (SMALL, {"ignore": ["y"]}, ["different columns"]),
    "split by target": (SMALL, {"split_column": "y"}, ["different columns"]),
    "split by what": (SMALL, {"split_column": "x"}, ["`split_column", "'train'", "'1'"]),
    "no training rows": (
        SMALL.replace("a", "test").replace("b", "test"),
        {"target": "x", "split_column": "y"},
        ["train"],
    ),
    "nothing left": (SMALL, {"ignore": ["x", "z"]}, ["no column left", "'y'"]),
    "task": (SMALL, {"task": "regression"}, ["`task`", "gaussian"]),
    "text as numbers": (SMALL, {"task": "gaussian"}, ["'y'", "text", "'a'"]),
    "one class": (SMALL.replace("b", "a"), {}, ["at least two classes", "1: a"]),
    "three classes": (SMALL.replace("4,8,b", "4,8,c"), {"task": "bernoulli"}, ["two classes", "3: a, b, c"]),
    "no target at all": ("x,y\n1,\n2,\n", {}, ["'y' has no value"]),
    "no rows": ("x,y\n", {}, ["'y' has no value"]),
    "no header": ("", {}, ["my.csv", "empty"]),
    "ragged": ("x,y\n1,a\n2\n", {}, ["my.csv", "Expected 2 columns, got 1"]),
    "two of a name": ("x,x,y\n1,2,a\n", {}, ["two columns called 'x'"]),
    "no name": ("x,,y\n1,2,a\n", {}, ["no name", "column 2"]),
    "not UTF-8": (b"x,y\n1,\xe9\n", {}, ["my.csv", "UTF-8"]),
    "cut Parquet": (b"PAR1 and no more", {}, ["my.csv", "cannot be read"]),
    "max_categories": (SMALL, {"max_categories": 0}, ["`max_categories`"]),
    "too few rows": (SMALL, {"validation": 2, "test": 2}, ["leave rows to train on"]),
}


@pytest.mark.parametrize(("text", "options", "words"), WRONG.values(), ids=WRONG)
def test_what_is_refused(text, options, words, tmp_path):
    with pytest.raises(ValueError, match=r".") as error:
        load(tmp_path, text, **{"target": "y"} | options)
    for word in words:
        assert word in str(error.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(MissingData, match=r"no.csv.*SLIMBAYES_DATA"):
        load_table(tmp_path, path="no.csv", target="y")


def test_types_do_not_hang_on_where_a_block_ends(tmp_path):
    """Arrow infers from the first megabyte; what comes after it must not be an error, nor a line end in quotes."""
    rows = "".join(f"{n},a\n" for n in range(300_000))
    write(tmp_path, "x,y\n" + rows + '0.5,"b\n\nc"\n')
    columns = read_table_file(tmp_path / "my.csv").columns
    assert columns["x"][300_000].as_py() == "0.5"
    assert columns["y"][300_000].as_py() == "b\n\nc"


def test_a_target_of_blanks_or_a_question_mark_is_missing(tmp_path):
    with pytest.warns(UserWarning, match="dropped 2 rows"):
        data = load(tmp_path, "x, y\n1, yes\n2, ?\n3, no\n4,  \n", target="y", validation=0, test=0)
    assert data.task.classes == ("no", "yes")


def test_separators_in_quoted_names_do_not_count(tmp_path):
    write(tmp_path, '"a,b,c";y\n1;2\n')
    assert list(read_table_file(tmp_path / "my.csv").columns) == ["a,b,c", "y"]


def test_a_file_may_be_larger_than_a_block(tmp_path, monkeypatch):
    """Arrow refuses blocks of 2 GiB, so that no block can be a whole large file."""
    pa.csv.ReadOptions(block_size=table_file._BLOCK)
    rows = [[str(number), f"{number},\n{number}" if number % 3 else "?"] for number in range(50)]
    text = io.StringIO()
    csv.writer(text).writerows([["x", "y"], *rows])
    write(tmp_path, text.getvalue())
    monkeypatch.setattr(table_file, "_BLOCK", 64)
    columns = read_table_file(tmp_path / "my.csv").columns
    assert columns["x"].num_chunks > 1
    assert columns["x"].to_pylist() == [x for x, _ in rows]
    assert columns["y"].to_pylist() == [None if y == "?" else y for _, y in rows]
