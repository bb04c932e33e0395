"""UCI sets: files written here, and the publisher's where they are."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from slimbayes.data.folders import MissingData
from slimbayes.data.uci import UCI_SETS, load_uci

DATA = np.array([[1.0, 7.0, 10.0, 5.0], [3.0, 7.0, 30.0, 6.0], [5.0, 7.0, 80.0, 7.0], [9.0, 8.0, 40.0, 8.0]])


def write_set(folder, name="yacht", **files):
    """Write 4 rows: features in columns 0 and 1, the target in 2, and a column that is neither."""
    place = folder / UCI_SETS[name] / "data"
    place.mkdir(parents=True)
    content = {
        "data": "\n".join("\t".join(map(str, row)) for row in DATA) + "\n\n",
        "index_features": "0\n1\n",
        "index_target": "2\n",
        "n_splits": "2\n",
        "index_train_0": "2\n0\n1\n",
        "index_test_0": "3\n",
        "index_train_1": "3\n0\n",
        "index_test_1": "1\n2\n",
    } | files
    for file, text in content.items():
        if text is not None:
            (place / f"{file}.txt").write_text(text)


@pytest.mark.parametrize("sub", ["uci", "UCI_Datasets", "."])
def test_a_small_set(sub, tmp_path):
    write_set(tmp_path / sub)
    data = load_uci(tmp_path, set="yacht", validation=0)
    assert (len(data.train), data.validation, len(data.test)) == (3, None, 1)
    order = torch.cat([data.train.inputs[0], data.test.inputs[0]])[:, 0].tolist()
    assert sorted(order[:3]) == [1.0, 3.0, 5.0]
    assert order[3] == 9.0
    # Training rows have the target 10, 30, 80: mean 40; the constant column is only shifted.
    std = np.std([10.0, 30.0, 80.0])
    assert (data.task.target_mean, data.task.target_std) == (40.0, pytest.approx(std))
    (x,) = data.preparation(data.test.inputs[0])
    np.testing.assert_allclose(x, [[(9.0 - 3.0) / np.std([1.0, 3.0, 5.0]), 1.0]], rtol=1e-6)
    np.testing.assert_allclose(data.test.targets, [0.0], atol=1e-7)
    by_input = dict(zip(data.train.inputs[0][:, 0].tolist(), data.train.targets.tolist(), strict=True))
    assert by_input == pytest.approx({1.0: -30 / std, 3.0: -10 / std, 5.0: 40 / std}, rel=1e-6)


def test_the_other_split_and_its_validation(tmp_path):
    write_set(tmp_path)
    data = load_uci(tmp_path, set="yacht", split=1, validation=1)
    assert (len(data.train), len(data.validation), len(data.test)) == (1, 1, 2)
    assert data.test.inputs[0][:, 0].tolist() == [3.0, 5.0]
    assert {data.train.inputs[0][0, 0].item(), data.validation.inputs[0][0, 0].item()} == {1.0, 9.0}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"set": "bostn"}, ["`set`", "Did you mean 'boston'"]),
        ({"split": -1}, ["`split`", "-1"]),
        ({"split": 2}, ["`split`", "below 2", "got 2"]),
        ({"validation": 3}, ["`validation`", "leave rows"]),
    ],
)
def test_options_without_sense(options, words, tmp_path):
    write_set(tmp_path)
    with pytest.raises(ValueError, match="Expected") as error:
        load_uci(tmp_path, **{"set": "yacht"} | options)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"data": ""}, ["data.txt", "empty"]),
        ({"data": "1 2\n1 2 3\n"}, ["data.txt", "table of numbers"]),
        ({"data": "1 2 x 4\n"}, ["data.txt", "'x'"]),
        ({"data": "1 2 nan 4\n"}, ["data.txt", "not finite"]),
        ({"index_train_0": "0\n4\n"}, ["index_train_0.txt", "0 to 3", "4"]),
        ({"index_train_0": "0\n0.5\n"}, ["index_train_0.txt", "whole", "0.5"]),
        ({"index_train_0": "0\n0\n"}, ["index_train_0.txt", "twice"]),
        ({"index_train_0": "0\n3\n"}, ["split 0 overlap"]),
        ({"index_features": "0\n7\n"}, ["index_features.txt", "0 to 3", "7"]),
    ],
)
def test_a_broken_file_is_named(files, words, tmp_path):
    write_set(tmp_path, **files)
    with pytest.raises(ValueError, match="yacht") as error:
        load_uci(tmp_path, set="yacht")
    for word in words:
        assert word in str(error.value)


def test_missing_files_say_where_to_get_them(tmp_path):
    with pytest.raises(MissingData) as error:
        load_uci(tmp_path, set="naval")
    named = ("naval-propulsion-plant/data/data.txt", str(tmp_path), "--data-dir", "SLIMBAYES_DATA", "data get uci")
    for word in (*named, "https://"):
        assert word in str(error.value)
    write_set(tmp_path, index_test_0=None)
    with pytest.raises(MissingData, match=r"index_test_0.txt.*data get uci"):
        load_uci(tmp_path, set="yacht")


# Rows, features, splits: Hernández-Lobato and Adams (2015), Table 1; naval has 16 features and two targets there too.
PUBLISHED = {
    "boston": (506, 13, 20),
    "concrete": (1030, 8, 20),
    "energy": (768, 8, 20),
    "kin8nm": (8192, 8, 20),
    "naval": (11934, 16, 20),
    "power": (9568, 4, 20),
    "protein": (45730, 9, 5),
    "wine": (1599, 11, 20),
    "yacht": (308, 6, 20),
}


@pytest.mark.skipif("SLIMBAYES_DATA" not in os.environ, reason="SLIMBAYES_DATA names no folder with the real data")
@pytest.mark.parametrize("name", UCI_SETS)
def test_the_real_files(name):
    folder = Path(os.environ["SLIMBAYES_DATA"])
    rows, features, splits = PUBLISHED[name]
    data = load_uci(folder, set=name, split=splits - 1, validation=0)
    assert (len(data.train), len(data.test)) == (round(rows * 0.9), rows - round(rows * 0.9))
    assert data.task.input_shape == (features,)
    with pytest.raises(ValueError, match=f"below {splits}"):
        load_uci(folder, set=name, split=splits)
    # Against the file itself, read in another way.
    place = folder / "uci" / UCI_SETS[name] / "data"
    table = np.array([line.split() for line in (place / "data.txt").read_text().splitlines() if line.strip()], float)
    test = [int(line) for line in (place / f"index_test_{splits - 1}.txt").read_text().split()]
    train = np.setdiff1d(np.arange(rows), test)
    inputs, target = table[:, :features], table[:, features]
    scale = np.where(np.ptp(inputs[train], 0) == 0, 1, inputs[train].std(0))
    (x,) = data.preparation(data.test.inputs[0])
    np.testing.assert_allclose(x, (inputs[test] - inputs[train].mean(0)) / scale, rtol=1e-5, atol=1e-5)
    y = data.test.targets.double() * data.task.target_std + data.task.target_mean
    np.testing.assert_allclose(y, target[test], rtol=1e-5, atol=1e-5)
