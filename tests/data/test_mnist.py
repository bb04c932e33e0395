"""IDX files written byte by byte, and the real ones where they are."""

import gzip
import os
import struct

import numpy as np
import pytest

from slimbayes.data import load_idx, load_mnist

DTYPES = {
    "uint8": (0x08, "B", [[0, 1, 255], [7, 8, 9]]),
    "int8": (0x09, "b", [[0, -1, 127], [-128, 8, 9]]),
    "int16": (0x0B, "h", [[0, -2, 32767], [-32768, 258, 9]]),
    "int32": (0x0C, "i", [[0, -2, 2**31 - 1], [-(2**31), 66051, 9]]),
    "float32": (0x0D, "f", [[0.5, -2.25, 1e30], [0.0, 3.0, 2**-20]]),
    "float64": (0x0E, "d", [[0.1, -2.25, 1e300], [0.0, 3.0, 2**-50]]),
}


def idx(code, letter, shape, values):
    return struct.pack(f">BBBB{len(shape)}I{len(values)}{letter}", 0, 0, code, len(shape), *shape, *values)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["raw", "gz"])
@pytest.mark.parametrize("name", DTYPES)
def test_every_number_type(name, pack, tmp_path):
    code, letter, values = DTYPES[name]
    path = tmp_path / "some-idx2"
    path.write_bytes(pack(idx(code, letter, (2, 3), [*values[0], *values[1]])))
    array = load_idx(path)
    np.testing.assert_array_equal(array, np.array(values, name))
    assert array.dtype == np.dtype(name)
    assert array.dtype.isnative
    array[0, 0] = 1  # it is the caller's own


def test_axes_are_in_order_and_may_be_empty(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(idx(8, "B", (2, 3, 4), range(24)))
    assert load_idx(path)[1, 2, 3] == 23
    assert load_idx(str(path))[0, 1].tolist() == [4, 5, 6, 7]
    path.write_bytes(idx(8, "B", (0, 28, 28), []))
    assert load_idx(path).shape == (0, 28, 28)


GOOD = idx(8, "B", (2, 3), range(6))
BROKEN = {
    "empty": (b"", ["not an IDX file", "0 bytes"]),
    "no IDX": (b"\x89PNG\r\n\x1a\n", ["not an IDX file", "89 50 4e 47"]),
    "unknown number type": (b"\0\0\x0a" + GOOD[3:], ["not an IDX file", "00 00 0a 02", "08, 09, 0b, 0c, 0d, 0e"]),
    "cut in the header": (GOOD[:11], ["truncated", "2 dimensions", "12 bytes", "11"]),
    "cut in the data": (GOOD[:-1], ["truncated", "(2, 3)", "uint8", "18 bytes", "17"]),
    "too long": (GOOD + b"\0", ["too long", "(2, 3)", "18 bytes", "19"]),
    "longer than any memory": (idx(8, "B", (2**32 - 1,) * 4, []), ["truncated", "4294967295"]),
    "cut gzip": (gzip.compress(GOOD)[:-9], ["truncated or damaged", "Fetch it again"]),
    "damaged gzip": (gzip.compress(GOOD)[:-8] + b"\0" * 8, ["truncated or damaged", "CRC"]),
    "cut inside gzip": (gzip.compress(GOOD[:-2]), ["truncated", "18 bytes", "16"]),
}


@pytest.mark.parametrize(("content", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_named_with_what_is_wrong(content, words, tmp_path):
    path = tmp_path / "some-idx2-ubyte"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="some-idx2-ubyte") as error:
        load_idx(path)
    for word in words:
        assert word in str(error.value)


# ---------------------------------------------------------------------- the four files

NAMES = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
]


def write_set(folder, first=0, ending=""):
    """Write 3 training and 2 test images of 2 x 2 pixels, numbered from ``first``."""
    folder.mkdir(parents=True, exist_ok=True)
    pack = gzip.compress if ending else bytes
    for name, shape in zip(NAMES, [(3, 2, 2), (3,), (2, 2, 2), (2,)], strict=True):
        values = range(first, first + int(np.prod(shape)))
        (folder / f"{name}{ending}").write_bytes(pack(idx(8, "B", shape, values)))


def assert_is_set(data, first=0):
    np.testing.assert_array_equal(data.train_images, np.arange(first, first + 12).reshape(3, 2, 2))
    np.testing.assert_array_equal(data.train_labels, np.arange(first, first + 3))
    np.testing.assert_array_equal(data.test_images, np.arange(first, first + 8).reshape(2, 2, 2))
    np.testing.assert_array_equal(data.test_labels, np.arange(first, first + 2))
    assert {array.dtype for array in data} == {np.dtype(np.uint8)}


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    ("kind", "sub"),
    [
        ("MNIST", "."),
        ("MNIST", "mnist"),
        ("MNIST", "MNIST/raw"),
        ("Fashion-MNIST", "."),
        ("Fashion-MNIST", "fashion-mnist"),
        ("Fashion-MNIST", "FashionMNIST/raw"),
    ],
)
def test_the_files_are_found(kind, sub, ending, tmp_path):
    write_set(tmp_path / sub, ending=ending)
    assert_is_set(load_mnist(tmp_path, kind))
    assert_is_set(load_mnist(str(tmp_path / sub), kind))


def test_the_sets_are_kept_apart(tmp_path):
    write_set(tmp_path / "mnist", ending=".gz")
    write_set(tmp_path / "fashion-mnist", 100, ".gz")
    (tmp_path / NAMES[0]).write_bytes(GOOD)  # a stray file must not be mixed in
    assert_is_set(load_mnist(tmp_path))
    assert_is_set(load_mnist(tmp_path, kind="Fashion-MNIST"), 100)


@pytest.mark.parametrize("missing", NAMES)
def test_a_missing_file_is_named_with_the_folder_and_the_remedy(missing, tmp_path):
    write_set(tmp_path / "mnist", ending=".gz")
    (tmp_path / "mnist" / f"{missing}.gz").unlink()
    with pytest.raises(FileNotFoundError) as error:
        load_mnist(tmp_path)
    for word in (missing, str(tmp_path), "mnist and MNIST/raw", "Give the folder", "https://"):
        assert word in str(error.value)


def test_another_sets_files_do_not_count(tmp_path):
    write_set(tmp_path / "fashion-mnist")
    with pytest.raises(FileNotFoundError, match="four files of MNIST"):
        load_mnist(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (NAMES[1], idx(8, "B", (2,), [0, 1]), ["3 images", "2 labels", NAMES[0], NAMES[1]]),
        (NAMES[2], idx(8, "B", (2,), [0, 1]), [NAMES[2], "3 dimensions", "(2,)"]),
        (NAMES[3], idx(0x0C, "i", (2,), [0, 1]), [NAMES[3], "uint8", "int32"]),
        (NAMES[3], GOOD[:-1], [NAMES[3], "truncated"]),
    ],
)
def test_files_that_do_not_fit_are_named(name, content, words, tmp_path):
    write_set(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match="ubyte") as error:
        load_mnist(tmp_path)
    for word in words:
        assert word in str(error.value)


def test_a_misspelt_kind():
    with pytest.raises(ValueError, match=r"`kind`.*'FashionMNIST'. Did you mean 'Fashion-MNIST'"):
        load_mnist(".", kind="FashionMNIST")


@pytest.mark.skipif("SLIMBAYES_DATA" not in os.environ, reason="SLIMBAYES_DATA names no folder with the real data")
@pytest.mark.parametrize(
    ("kind", "counts", "first_labels", "mean", "std"),
    [
        # The counts of each digit, and the two numbers by which everybody standardises.
        (
            "MNIST",
            (
                [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
                [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
            ),
            ([5, 0, 4, 1, 9], [7, 2, 1, 0, 4]),
            0.1307,
            0.3081,
        ),
        ("Fashion-MNIST", ([6000] * 10, [1000] * 10), ([9, 0, 0, 3, 0], [9, 2, 1, 1, 6]), 0.2860, 0.3530),
    ],
)
def test_the_real_files(kind, counts, first_labels, mean, std):
    data = load_mnist(os.environ["SLIMBAYES_DATA"], kind)
    assert data.train_images.shape == (60_000, 28, 28)
    assert data.test_images.shape == (10_000, 28, 28)
    for labels, count, first in zip((data.train_labels, data.test_labels), counts, first_labels, strict=True):
        assert np.bincount(labels).tolist() == count
        assert labels[:5].tolist() == first
    assert round(data.train_images.mean() / 255, 4) == mean
    assert round(data.train_images.std() / 255, 4) == std
