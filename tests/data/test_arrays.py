"""Arrays of an .npz file: what comes out, and what is refused."""

import numpy as np
import pytest
import torch

from slimbayes.data.arrays import load_arrays
from slimbayes.data.folders import MissingData

X = np.arange(12, dtype=np.float64).reshape(6, 2)


def load(folder, arrays, **options):
    np.savez(folder / "my.npz", **arrays)
    return load_arrays(folder, path="my.npz", **options)


def test_all_parts(tmp_path):
    arrays = {"x_train": X, "y_train": np.array([0, 1, 2, 0, 1, 2])}
    arrays |= {"x_validation": X[:2], "y_validation": np.array([3, 0]), "x_test": X[:1], "y_test": np.array([[1]])}
    data = load(tmp_path, arrays)
    assert data.train.inputs[0].equal(torch.from_numpy(X).float())
    assert [part.targets.tolist() for part in (data.train, data.validation, data.test)] == [
        [0, 1, 2, 0, 1, 2],
        [3, 0],
        [1],
    ]
    assert data.train.targets.dtype == torch.int64
    assert (data.task.likelihood, data.task.outputs, data.task.input_shape) == ("categorical", 4, (2,))
    assert data.preparation(*data.test.inputs) == data.test.inputs


@pytest.mark.parametrize(
    ("y", "task", "expected"),
    [
        (np.array([True, False] * 3), None, ("categorical", 2, [1, 0] * 3)),
        (np.array([0.0, 1, 2, 0, 1, 2], np.float16), "categorical", ("categorical", 3, [0, 1, 2, 0, 1, 2])),
        (np.array([0, 1] * 3, np.uint8), "bernoulli", ("bernoulli", 1, [0, 1] * 3)),
        (np.array([[0, 1]] * 6), "bernoulli", ("bernoulli", 2, [[0, 1]] * 6)),
        (np.array([0.0, 3.0] * 3), "poisson", ("poisson", 1, [0, 3] * 3)),
        (np.array([[0, 7]] * 6), "poisson", ("poisson", 2, [[0, 7]] * 6)),
        (np.array([1.0, 3.0] * 3), None, ("gaussian", 1, [-1.0, 1.0] * 3)),
        (np.array([1, 3] * 3, ">i4"), "gaussian", ("gaussian", 1, [-1.0, 1.0] * 3)),
        (np.array([[1.0, 3.0]] * 6), None, ("gaussian", 2, [[-1.0, 1.0]] * 6)),
        (np.array([5.1] * 6), None, ("gaussian", 1, [0.0] * 6)),
    ],
)
def test_targets(y, task, expected, tmp_path):
    data = load(tmp_path, {"x_train": X, "y_train": y}, task=task)
    assert (data.task.likelihood, data.task.outputs, data.train.targets.tolist()) == expected
    assert data.train.targets.dtype == (torch.float32 if expected[0] == "gaussian" else torch.int64)
    if expected[0] == "gaussian":
        back = data.train.targets.double() * data.task.target_std + data.task.target_mean
        np.testing.assert_allclose(back, y)


def test_several_inputs_in_the_order_of_their_numbers(tmp_path):
    arrays = {f"x_train{index}": np.full((3, 1), float(index)) for index in (10, *range(10))}
    data = load(tmp_path, arrays | {"y_train": np.zeros(3)})
    assert [x[0].item() for x in data.train.inputs] == list(range(11))


def test_tokens_and_booleans(tmp_path):
    arrays = {"x_train": np.array([[3, 1]] * 2, np.int16), "y_train": np.array([0, 1])}
    data = load(tmp_path, arrays | {"x_test": np.array([[0, 8]]), "y_test": np.array([0])})
    assert data.task.vocabulary == 9
    assert data.train.inputs[0].dtype == torch.int64
    data = load(tmp_path, arrays | {"x_train": np.array([[True], [False]])})
    assert data.train.inputs[0].equal(torch.tensor([[1.0], [0.0]]))
    assert data.task.vocabulary is None


def test_validation_may_be_cut_from_training_rows(tmp_path):
    data = load(tmp_path, {"x_train": X, "y_train": X[:, 0]}, validation=2, seed=1)
    assert (len(data.train), len(data.validation)) == (4, 2)
    kept = data.train.inputs[0][:, 0].double()
    assert data.task.target_mean == pytest.approx(kept.mean().item())  # of those that are trained on
    both = dict.fromkeys(("x_train", "y_train", "x_validation", "y_validation"), X)
    with pytest.raises(ValueError, match="`validation` to be 0"):
        load(tmp_path, both, validation=1)


Y = np.arange(6) % 2
REFUSED = {
    "no training part": ({"x_test": X, "y_test": Y}, {}, ["x_train and y_train", "x_test, y_test"]),
    "no targets": ({"x_train": X}, {}, ["y_train", "but holds x_train"]),
    "no inputs": ({"y_train": Y}, {}, ["x_train"]),
    "a gap": ({"x_train0": X, "x_train2": X, "y_train": Y}, {}, ["without a gap"]),
    "both ways": ({"x_train": X, "x_train1": X, "y_train": Y}, {}, ["x_train0"]),
    "misspelt": ({"x_train": X, "y_train": Y, "x_tset": X}, {}, ["'x_tset'", "Did you mean 'x_test'"]),
    "lengths": ({"x_train": X[:5], "y_train": Y}, {}, ["5 rows of x_train", "6 of y_train"]),
    "other shape": ({"x_train": X, "y_train": Y, "x_test": X[:, :1], "y_test": Y}, {}, ["(2,)", "(1,)"]),
    "text": ({"x_train": X, "y_train": np.array(list("abcdef"))}, {}, ["y_train", "<U1"]),
    "complex": ({"x_train": X * 1j, "y_train": Y}, {}, ["x_train", "complex128"]),
    "bytes": ({"x_train": X.astype(np.uint8), "y_train": Y}, {}, ["x_train", "uint8", "x / 255"]),
    "not finite": ({"x_train": np.full((6, 2), np.nan), "y_train": Y}, {}, ["not finite"]),
    "negative tokens": ({"x_train": X.astype(int) - 5, "y_train": Y}, {}, ["below 0", "floats"]),
    "empty": ({"x_train": X[:0], "y_train": Y[:0]}, {}, ["x_train", "(0, 2)"]),
    "negative class": ({"x_train": X, "y_train": Y - 1}, {}, ["class numbers", "-1"]),
    "fractional class": ({"x_train": X, "y_train": Y / 2}, {"task": "categorical"}, ["class numbers", "0.5"]),
    "one-hot": ({"x_train": X, "y_train": np.eye(6, dtype=int)}, {}, ["one for each row"]),
    "no yes or no": ({"x_train": X, "y_train": Y * 2}, {"task": "bernoulli"}, ["0 or 1", "2"]),
    "unknown task": ({"x_train": X, "y_train": Y}, {"task": "gausian"}, ["`task`", "'gaussian'?"]),
}


@pytest.mark.parametrize(("arrays", "options", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(arrays, options, words, tmp_path):
    with pytest.raises(ValueError, match=r".") as error:
        load(tmp_path, arrays, **options)
    for word in words:
        assert word in str(error.value)


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("it was unpickled",))


def test_nothing_is_unpickled(tmp_path):
    with pytest.raises(ValueError, match=r"my.npz is not an .npz file of plain arrays.*Python objects"):
        load(tmp_path, {"x_train": np.array([Bomb()], dtype=object), "y_train": Y})


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04cut", b"\x93NUMPY\x01", b"text"])
def test_a_broken_file_is_named(content, tmp_path):
    (tmp_path / "my.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"my.npz is not an .npz file"):
        load_arrays(tmp_path, path="my.npz")


def test_where_the_file_is_looked_for(tmp_path, monkeypatch):
    np.savez(tmp_path / "my.npz", x_train=X, y_train=Y)
    assert len(load_arrays(tmp_path / "elsewhere", path=str(tmp_path / "my.npz")).train) == 6
    monkeypatch.chdir(tmp_path)
    assert len(load_arrays(tmp_path / "elsewhere", path="my.npz").train) == 6
    with pytest.raises(MissingData, match=r"no file your.npz, neither .*elsewhere.*`path`.*SLIMBAYES_DATA"):
        load_arrays(tmp_path / "elsewhere", path="your.npz")
