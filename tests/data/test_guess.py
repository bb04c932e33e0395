"""What the columns of a table are taken for."""

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from houses import messy_csv
from slimbayes.data.guess import guess_table
from slimbayes.data.table import load_table


def roles(guess):
    return {column.name: (column.role, column.kind) for column in guess.columns}


def test_a_messy_table(tmp_path):
    guess = guess_table(messy_csv(tmp_path), "price")
    assert roles(guess) == {
        "id": ("ignored", "identifier"),
        "sold": ("input", "date"),
        "size": ("input", "number"),
        "town": ("input", "category"),
        "zip": ("input", "category"),
        "currency": ("ignored", "constant"),
        "rooms": ("input", "number"),
        "garden": ("input", "truth value"),
        "owner": ("ignored", "identifier"),
        "nothing": ("ignored", "empty"),
        "price": ("target", "number"),
    }
    assert guess.task == "regression"
    assert guess.options == {"ignore": ["id", "currency", "owner", "nothing"], "categorical": ["zip"]}
    by_name = {column.name: column for column in guess.columns}
    assert by_name["town"].missing == 30
    assert "decimal commas" in by_name["size"].remark
    assert "leading zeros" in by_name["zip"].remark


def test_every_guess_can_be_overridden(tmp_path):
    path = messy_csv(tmp_path)
    guess = guess_table(
        path, "price", task="counts", ignore=["size"], categorical=["rooms", "owner"], numeric=["id", "zip"]
    )
    assert guess.task == "counts"
    assert guess.options == {"ignore": ["size", "currency", "nothing"], "categorical": ["rooms", "owner"]}
    assert roles(guess)["id"] == ("input", "number")
    assert roles(guess)["zip"] == ("input", "number")


TARGETS = {
    "two classes": (["yes", "no"] * 15, "classes"),
    "truth values": (["true", "false"] * 15, "classes"),
    "few whole numbers": ([3, 4, 5] * 10, "classes"),
    "decimals": ([0.5, 1.5, 2.25] * 10, "regression"),
    "counts": ([*range(15)] * 2, "counts"),
    "large whole numbers": ([*range(0, 3000, 100)], "regression"),
    "whole, and never zero": ([*range(5, 35)], "regression"),
    "numbers of rows": ([*range(1, 31)], "regression"),
    "dates": ([f"2020-01-{day:02d}" for day in range(1, 31)], "regression"),
    "a new name in each row": ([f"n{row}" for row in range(30)], "classes"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_the_task(name, tmp_path):
    values, task = TARGETS[name]
    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + "".join(f"{row % 7}.5,{value}\n" for row, value in enumerate(values)))
    assert guess_table(path, "y").task == task


def test_numbers_and_dates_that_a_parquet_file_has_as_text(tmp_path):
    """They are read as such, in training and for other files."""
    size = np.linspace(1, 5, 40)
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(row) for row in range(40)]
    texts = {"size": [f" {value:.3f}" for value in size], "day": [str(day) for day in days]}
    other = {"town": ["Bath", "York"] * 20, "y": [f"{value:.2f}" for value in size]}
    pq.write_table(pa.table({**texts, **other}), tmp_path / "a.parquet")
    guess = guess_table(tmp_path / "a.parquet", "y")
    assert roles(guess) == {
        "size": ("input", "number"),
        "day": ("input", "date"),
        "town": ("input", "category"),
        "y": ("target", "number"),
    }
    assert guess.options == {"parse": ["size", "day", "y"]}
    typed = {"size": size.round(3), "day": days, "town": other["town"], "y": size.round(2)}
    pq.write_table(pa.table(typed), tmp_path / "b.parquet")
    options = {"target": "y", "task": "gaussian"}
    read = load_table(tmp_path, path="a.parquet", **options, **guess.options)
    plain = load_table(tmp_path, path="b.parquet", **options)
    assert read.preparation.spec() == plain.preparation.spec()
    torch.testing.assert_close(read.train.inputs[0], plain.train.inputs[0])
    torch.testing.assert_close(read.train.targets, plain.train.targets)
    torch.testing.assert_close(
        read.preparation.read(tmp_path / "a.parquet").inputs[0], read.preparation.read(tmp_path / "b.parquet").inputs[0]
    )


def test_many_categories_are_cut_to_the_most_frequent(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("town,y\n" + "".join(f"t{row % 150},{row / 7:.3f}\n" for row in range(600)))
    guess = guess_table(path, "y")
    assert guess.options == {"categorical": ["town"]}
    assert "most frequent 100 of 150" in guess.columns[0].remark
    assert load_table(tmp_path, path="a.csv", target="y", **guess.options).task.input_shape == (101,)


WRONG = {
    "target": ({"target": "pricce"}, "`target`.*'pricce'.*'price'"),
    "column": ({"target": "price", "ignore": ["siz"]}, "`ignore`.*'siz'.*'size'"),
    "two roles": ({"target": "price", "ignore": ["size"], "numeric": ["size"]}, "'size' has two"),
    "no target left": ({"target": "price", "ignore": ["price"]}, "`ignore`.*'price'"),
    "no number": ({"target": "price", "numeric": ["town"]}, "'town' is not a number.*'Bath'.*Correct"),
    "task": ({"target": "price", "task": "regresion"}, "'regresion'.*'regression'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_argument_value_and_remedy(name, tmp_path):
    options, words = WRONG[name]
    with pytest.raises(ValueError, match=words):
        guess_table(messy_csv(tmp_path), **options)


def test_numbers_with_a_few_texts_are_an_error_that_says_which(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + "".join(f"{row + 20}.5,{row}\n" for row in range(30)) + "12%,3\n")
    with pytest.raises(ValueError, match=r"'x' has '12%' in row 30.*`categorical`"):
        guess_table(path, "y")
    assert guess_table(path, "y", ignore=["x"]).options == {"ignore": ["x"]}
