"""MNIST and Fashion-MNIST as data sets: small files written by hand, and the real ones."""

import os
import struct

import numpy as np
import pytest
import torch

from slimbayes.data._mnist_set import load_fashion_mnist_set, load_mnist_set
from slimbayes.data.folders import MissingData
from slimbayes.data.mnist import load_mnist
from slimbayes.data.registry import load_data

LOADERS = {"mnist": load_mnist_set, "fashion-mnist": load_fashion_mnist_set}


def write(folder, train=6, test=2):
    folder.mkdir()
    for name, count in (("train", train), ("t10k", test)):
        images, labels = bytes(range(4 * count)), bytes(i % 10 for i in range(count))
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, count, 2, 2) + images)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, count) + labels)


@pytest.mark.parametrize("sub", LOADERS)
def test_parts_shapes_and_scale(sub, tmp_path):
    write(tmp_path / sub)
    data = LOADERS[sub](tmp_path, validation=2)
    assert (len(data.train), len(data.validation), len(data.test)) == (4, 2, 2)
    (x,), y = data.validation.fetch(torch.tensor([1, 0]))
    assert x.dtype == torch.uint8
    assert x.tolist() == [[[[20, 21], [22, 23]]], [[[16, 17], [18, 19]]]]
    assert y.tolist() == [5, 4]
    assert y.dtype == torch.int64
    torch.testing.assert_close(data.preparation(x)[0], x / 127.5 - 1)
    assert data.task.input_shape == (1, 2, 2)
    assert data.task.likelihood == "categorical"
    assert len(data.task.classes) == data.task.outputs == 10
    assert data.augmentation is None
    assert LOADERS[sub](tmp_path, validation=0).validation is None


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_missing_files_say_how_to_get_them(name, tmp_path):
    with pytest.raises(MissingData) as error:
        load_data(name, tmp_path)
    words = [str(tmp_path), "train-images-idx3-ubyte", f"slimbayes data get {name}", "--data-dir", "SLIMBAYES_DATA"]
    for word in (*words, "http"):
        assert word in str(error.value)


def test_wrong_options_are_named(tmp_path):
    write(tmp_path / "mnist")
    with pytest.raises(ValueError, match="`validation`"):
        load_mnist_set(tmp_path)  # 10,000 of 6
    with pytest.raises(ValueError, match="`normalise`.*'standard', 'symmetric', 'unit'"):
        load_mnist_set(tmp_path, validation=0, normalise="none")


@pytest.mark.skipif("SLIMBAYES_DATA" not in os.environ, reason="SLIMBAYES_DATA names no folder with the real data")
@pytest.mark.parametrize(("name", "kind"), [("mnist", "MNIST"), ("fashion_mnist", "Fashion-MNIST")])
def test_the_real_files(name, kind):
    data = load_data(name, os.environ["SLIMBAYES_DATA"], normalise="standard")
    published = load_mnist(os.environ["SLIMBAYES_DATA"], kind)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [50_000, 10_000, 10_000]
    assert data.task.input_shape == (1, 28, 28)
    np.testing.assert_array_equal(data.train.targets, published.train_labels[:50_000])
    np.testing.assert_array_equal(data.validation.inputs[0][:, 0], published.train_images[50_000:])
    if name == "mnist":  # the digits of the usual 50,000
        counts = [4932, 5678, 4968, 5101, 4859, 4506, 4951, 5175, 4842, 4988]
        assert data.train.targets.bincount().tolist() == counts
    (x,) = data.preparation(*data.train.inputs)
    assert abs(x.mean()) < 0.01
    assert abs(x.std() - 1) < 0.01
