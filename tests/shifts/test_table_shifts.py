"""Shifts of tables and plain series: what a preparation would have made of missing values, variances, gaps."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from slimbayes.data._columns import Category, Number, spec_of
from slimbayes.data.dataset import DataSet, Examples, Task
from slimbayes.data.preparation import Arrays
from slimbayes.data.registry import load_data
from slimbayes.data.table import Table
from slimbayes.shifts import CONSTANTS, shifts_for

AGE = Number("age", "number", mean=40.0, std=10.0, fill=40.0, flagged=True)
PET = Category("pet", ["cat", "dog"])
SMOKES = Number("smokes", "boolean", mean=0.0, std=1.0, fill=0.3, flagged=False)
WHEN = Number("when", "date", mean=5.0, std=2.0, fill=5.0, flagged=False)
COLUMNS = (AGE, PET, SMOKES, WHEN)
ROWS = 4000


def table(seed=0):
    """Return a table of all kinds of columns, and their values before encoding; some ages are missing."""
    random = np.random.default_rng(seed)
    age = np.where(random.random(ROWS) < 0.2, np.nan, random.normal(40, 10, ROWS))
    values = (age, random.choice(["cat", "dog"], ROWS), random.random(ROWS).round(), random.normal(5, 2, ROWS))
    encoded = np.concatenate([column.encode(part) for column, part in zip(COLUMNS, values, strict=True)], 1)
    examples = Examples((torch.from_numpy(encoded),), torch.zeros(ROWS))
    preparation = Table([spec_of(column) for column in COLUMNS])
    return DataSet("table", examples, None, examples, Task("gaussian", 1, (7,)), preparation), values


def arrays(*shape):
    x = 5 + 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    examples = Examples((x,), torch.zeros(len(x)))
    return DataSet("arrays", examples, None, examples, Task("gaussian", 1, tuple(shape[1:])), Arrays())


def test_missing_features_are_encoded_as_the_table_encodes_them():
    data, values = table()
    (x,) = shifts_for(data)["missing"](data.test.inputs, severity=3)
    missing = [None] * len(COLUMNS)
    for feature, (column, part) in enumerate(zip(COLUMNS, values, strict=True)):
        nothing = np.full(ROWS, "" if column is PET else np.nan)
        plain, gone = (torch.from_numpy(column.encode(one)) for one in (part, nothing))
        columns = slice(sum(one.width for one in COLUMNS[:feature]), sum(one.width for one in COLUMNS[: feature + 1]))
        is_plain, is_gone = ((x[:, columns] == one).all(1) for one in (plain, gone))
        assert (is_plain | is_gone).all()  # all of a feature's columns, or none
        missing[feature] = is_gone[(plain != gone).any(1)].float().mean().item()
    share, present = CONSTANTS["missing"][2], 0.8 * ROWS
    assert missing == pytest.approx([share] * 4, abs=4 * np.sqrt(share * (1 - share) / present))


def test_noise_is_of_real_values_only_and_has_its_variance():
    data, _ = table()
    (before,) = data.test.inputs
    (x,) = shifts_for(data)["noise"](data.test.inputs, severity=4)
    change = x - before
    assert (change[:, [1, 2, 3, 4, 5]] == 0).all()  # the flag, the categories, the truth value
    flagged = before[:, 1] == 1
    assert (change[flagged, 0] == 0).all()
    size = CONSTANTS["noise"][3]
    for noise in (change[~flagged, 0], change[:, 6]):  # 4 standard errors of a variance and of a mean
        assert noise.var().item() == pytest.approx(size**2, rel=4 * np.sqrt(2 / len(noise)))
        assert abs(noise.mean()) < 4 * size / np.sqrt(len(noise))


def test_drift_is_the_same_for_all_examples_and_grows():
    data = load_data("breast_cancer")
    inputs = data.preparation(*data.test.fetch(torch.arange(50))[0])
    moved = [shifts_for(data)["drift"](inputs, severity)[0] - inputs[0] for severity in (1, 5)]
    for one in moved:
        torch.testing.assert_close(one, one[:1].expand_as(one), atol=1e-5, rtol=0)
    torch.testing.assert_close(moved[1], 5 * moved[0], atol=1e-4, rtol=0)
    assert moved[1][0].std().item() == pytest.approx(1, abs=4 / np.sqrt(2 * 30))


def test_what_is_missing_stays_missing_at_the_next_severity():
    data, _ = table()
    before = data.test.inputs[0][:, 2:5]
    gone = [(shifts_for(data)["missing"](data.test.inputs, one)[0][:, 2:5] != before).any(1) for one in range(1, 6)]
    for less, more in pairwise(gone):
        assert (more | ~less).all()
        assert more.sum() > less.sum()


@pytest.mark.parametrize("name", ["missing", "noise", "drift", "gap"])
def test_an_example_does_not_depend_on_its_batch(name):
    data = arrays(30, 12, 4)
    shift = shifts_for(data)[name]
    (whole,) = shift(data.test.inputs, severity=4, seed=7)
    rows = torch.tensor([21, 3, 3, 29])
    (some,) = shift(data.test.fetch(rows)[0], severity=4, seed=7, numbers=rows)
    assert torch.equal(some, whole[rows])
    assert not torch.equal(shift(data.test.inputs, severity=4, seed=8)[0], whole)


def test_unscaled_arrays_are_shifted_on_their_own_scale():
    data = arrays(2000, 3)
    (x,) = data.test.inputs
    x[:, 2] = 1.0  # a constant is no real value
    shifts = shifts_for(data)
    assert list(shifts) == ["missing", "noise", "drift"]
    noise = shifts["noise"]((x,), severity=5)[0] - x
    expected = [*(CONSTANTS["noise"][4] * x[:, :2].std(0)).tolist(), 0]
    assert noise.std(0).tolist() == pytest.approx(expected, rel=4 / np.sqrt(4000))
    changed = shifts["missing"]((x,), severity=5)[0]
    assert torch.equal(changed[changed != x].unique(), x[:, :2].mean(0).sort().values)


def test_a_gap_in_a_plain_series_is_one_stretch_of_the_mean():
    data = arrays(40, 20, 3)
    (x,) = data.test.inputs
    (shifted,) = shifts_for(data)["gap"]((x,), severity=3)
    for before, after in zip(x, shifted, strict=True):
        lost = (before != after).all(1).nonzero().flatten()
        assert len(lost) == 6  # 0.3 * 20
        assert lost[-1] - lost[0] == 5
        torch.testing.assert_close(after[lost], x.flatten(0, 1).mean(0).expand(6, 3))
        assert (before != after).sum() == 18


def test_unknown_inputs_have_no_shifts():
    assert shifts_for(load_data("digits")) == {}
    tokens = Examples((torch.zeros(3, 4, dtype=torch.int64),), torch.zeros(3))
    assert shifts_for(DataSet("arrays", tokens, None, tokens, Task("gaussian", 1, (4,), vocabulary=1))) == {}


def test_the_table_of_constants_is_in_the_documentation():
    text = (Path(__file__).parents[2] / "docs" / "shifts.md").read_text()
    for name, constants in CONSTANTS.items():
        assert any(line.startswith(f"| `{name}`") and f"{constants}"[1:-1] in line for line in text.splitlines()), name
