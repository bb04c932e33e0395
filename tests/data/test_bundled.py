"""Scikit-learn's own sets: the demo's digits, and its scalers as oracle for the rest."""

from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
import torch
from sklearn.preprocessing import StandardScaler

from slimbayes.data._bundled import load_digits_set
from slimbayes.data.digits import load_digits
from slimbayes.data.preparation import get_preparation
from slimbayes.data.registry import load_data

PARTS = ("train", "validation", "test")
SHAPES = {"iris": (150, 4, 3), "wine": (178, 13, 3), "breast_cancer": (569, 30, 2), "diabetes": (442, 10, 1)}


def test_digits_are_the_demos():
    data, demo = load_digits_set(Path()), load_digits()
    for part in PARTS:
        images, labels = getattr(demo, part)
        (x,), y = getattr(data, part).fetch(torch.arange(len(labels)))
        assert x.equal(images)
        assert y.equal(labels)
        assert data.preparation(x)[0] is x
    assert (data.task.likelihood, data.task.outputs, data.task.input_shape) == ("categorical", 10, (1, 8, 8))


def test_digits_may_be_split_otherwise():
    data = load_digits_set(Path(), validation=0, test=0.5, seed=1)
    assert (len(data.train), data.validation, len(data.test)) == (899, None, 898)
    counts = torch.bincount(data.test.targets)
    assert (counts - torch.bincount(data.train.targets)).abs().max() <= 2
    assert not data.test.inputs[0].equal(load_digits_set(Path(), validation=0, test=0.5, seed=2).test.inputs[0])


def original(name):
    options = {"scaled": False} if name == "diabetes" else {}
    return getattr(sklearn.datasets, f"load_{name}")(**options)


@pytest.mark.parametrize("name", SHAPES)
def test_every_row_once_and_standardised_by_training_rows(name):
    data, bunch = load_data(name), original(name)
    count, columns, outputs = SHAPES[name]
    assert (data.task.input_shape, data.task.outputs) == ((columns,), outputs)
    raw = [getattr(data, part).inputs[0].numpy() for part in PARTS]
    assert [len(part) for part in raw[1:]] == [round(count * 0.1), round(count * 0.2)]
    ours, theirs = np.concatenate(raw), bunch.data
    np.testing.assert_array_equal(ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)])
    scaler = StandardScaler().fit(raw[0])
    rebuilt = get_preparation(data.preparation.spec())
    for part in raw:
        (x,) = rebuilt(torch.from_numpy(part))
        assert x.dtype == torch.float32
        np.testing.assert_allclose(x, scaler.transform(part), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SHAPES)
def test_targets_belong_to_their_rows(name):
    data, bunch = load_data(name, seed=5), original(name)
    answers = {row.tobytes(): set() for row in bunch.data}
    for row, y in zip(bunch.data, bunch.target, strict=True):
        answers[row.tobytes()].add(round(float(y), 3))
    for part in PARTS:
        examples = getattr(data, part)
        y = examples.targets.double() * data.task.target_std + data.task.target_mean
        for row, value in zip(examples.inputs[0].numpy(), y.tolist(), strict=True):
            assert round(value, 3) in answers[row.tobytes()]
    if name != "diabetes":
        assert data.task.classes == tuple(bunch.target_names)
        assert data.train.targets.dtype == torch.int64
        return
    assert data.task.likelihood == "gaussian"
    assert data.train.targets.mean().abs() < 1e-6
    assert (data.train.targets.std(unbiased=False) - 1).abs() < 1e-6


def test_prediction_takes_raw_rows(tmp_path):
    data = load_data("iris")
    rows = data.test.inputs[0]
    np.savez(tmp_path / "a.npz", x=rows.numpy())
    raw = data.preparation.read(tmp_path / "a.npz")
    torch.testing.assert_close(data.preparation(*raw.inputs)[0], data.preparation(rows)[0], rtol=0, atol=1e-5)
    np.save(tmp_path / "b.npy", np.zeros((2, 5)))
    with pytest.raises(ValueError, match=r"b.npy.*\(rows, 4\).*\(2, 5\)"):
        data.preparation.read(tmp_path / "b.npy")
