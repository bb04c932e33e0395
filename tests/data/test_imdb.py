"""IMDB from small archives written here, and the real one against what Keras publishes about it."""

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

from slimbayes.data.folders import MissingData
from slimbayes.data.imdb import load_imdb

FILES = {
    "train/pos/0_9.txt": "good good film",
    "train/pos/10_8.txt": "good film indeed",
    "train/pos/2_8.txt": "the good one",
    "train/neg/0_1.txt": "bad film",
    "train/neg/1_2.txt": "the bad film",
    "train/unsup/0_0.txt": "unlabelled unlabelled unlabelled unlabelled",
    "test/pos/0_10.txt": "good and unseen",
    "test/neg/0_3.txt": "bad",
    "train/labeledBow.feat": "9 0:9",
    "imdb.vocab": "the",
}
# In Keras's order of names (pos, then neg, each by the alphabet), and counted by hand: good 4, film 4, ...
ORDER = ["0_9", "10_8", "2_8", "0_1", "1_2"]
WORDS = "good film the bad indeed one"


def write_folder(root):
    for name, text in FILES.items():
        path = root / "aclImdb" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write_archive(path, files=FILES):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, text in reversed(files.items()):
            info = tarfile.TarInfo(f"aclImdb/{name}")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))


@pytest.mark.parametrize("place", ["imdb/aclImdb_v1.tar.gz", "aclImdb_v1.tar.gz", "imdb", ".", "inside"])
def test_the_files_are_found_and_numbered_as_by_keras(place, tmp_path):
    if place.endswith(".gz"):
        write_archive(tmp_path / place)
    else:
        write_folder(tmp_path if place == "inside" else tmp_path / place)
    data = load_imdb(tmp_path / "aclImdb" if place == "inside" else tmp_path, vocabulary=9, length=4, validation=2)
    shuffle = np.random.RandomState(113)
    order, test_order = np.arange(5), np.arange(2)
    shuffle.shuffle(order)
    shuffle.shuffle(test_order)
    assert data.preparation.words.split(" ")[:4] == WORDS.split()[:4]
    # good 4, film 5, the 6, bad 7, and of indeed and one the first that appears is 8
    rows = [[1, 4, 4, 5], [1, 4, 5, 8], [1, 6, 4, 2], [0, 1, 7, 5], [1, 6, 7, 5]]
    tokens = np.array(rows)[order]
    targets = np.array([1.0, 1, 1, 0, 0])[order]
    np.testing.assert_array_equal(data.train.inputs[0].numpy(), tokens[:3])
    np.testing.assert_array_equal(data.validation.inputs[0].numpy(), tokens[3:])
    np.testing.assert_array_equal(data.train.targets.numpy(), targets[:3])
    np.testing.assert_array_equal(data.validation.targets.numpy(), targets[3:])
    np.testing.assert_array_equal(data.test.inputs[0].numpy(), np.array([[0, 0, 1, 4], [0, 0, 1, 7]])[test_order])
    np.testing.assert_array_equal(data.test.targets.numpy(), np.array([1.0, 0.0])[test_order])
    assert (data.task.likelihood, data.task.outputs, data.task.vocabulary) == ("bernoulli", 1, 9)


def test_no_validation(tmp_path):
    write_archive(tmp_path / "aclImdb_v1.tar.gz")
    data = load_imdb(tmp_path, validation=0)
    assert data.validation is None
    assert len(data.train) == 5


def test_missing_files_say_what_to_do(tmp_path):
    with pytest.raises(MissingData) as error:
        load_imdb(tmp_path)
    for word in (
        "aclImdb_v1.tar.gz",
        str(tmp_path),
        "--data-dir",
        "SLIMBAYES_DATA",
        "slimbayes data get imdb",
        "https:",
    ):
        assert word in str(error.value)


def test_a_cut_or_incomplete_archive(tmp_path):
    path = tmp_path / "aclImdb_v1.tar.gz"
    write_archive(path)
    whole = path.read_bytes()
    for cut in (100, len(whole) // 2, len(whole) - 20):
        path.write_bytes(whole[:-cut])
        with pytest.raises(ValueError, match=r"aclImdb_v1.tar.gz is truncated or damaged.*Fetch it again"):
            load_imdb(tmp_path)
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(ValueError, match=r"aclImdb_v1.tar.gz is truncated or damaged"):
        load_imdb(tmp_path)
    write_archive(path, {name: text for name, text in FILES.items() if not name.startswith("test/neg")})
    with pytest.raises(ValueError, match=r"incomplete.*test/neg"):
        load_imdb(tmp_path)


@pytest.mark.parametrize(
    ("options", "word"),
    [({"vocabulary": 3}, "`vocabulary`"), ({"length": 0}, "`length`"), ({"validation": 5}, "leave rows to train on")],
)
def test_arguments_that_make_no_sense(options, word, tmp_path):
    write_archive(tmp_path / "aclImdb_v1.tar.gz")
    with pytest.raises(ValueError, match=word):
        load_imdb(tmp_path, **options)


@pytest.mark.slow
@pytest.mark.skipif("SLIMBAYES_DATA" not in os.environ, reason="SLIMBAYES_DATA names no folder with the real data")
def test_the_real_archive_is_what_keras_has():
    data = load_imdb(Path(os.environ["SLIMBAYES_DATA"]), length=700)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [20_000, 5_000, 25_000]
    train, test = data.train.inputs[0], data.test.inputs[0]
    # Of keras.datasets.imdb.load_data: the lengths and the labels of the first reviews.
    assert (train[:5] != 0).sum(1).tolist() == [218, 189, 141, 550, 147]
    assert (test[:5] != 0).sum(1).tolist() == [68, 260, 603, 181, 108]
    assert data.train.targets[:10].tolist() == [1, 0, 0, 1, 0, 0, 1, 0, 1, 0]
    assert data.test.targets[:5].tolist() == [0, 1, 1, 0, 1]
    words = data.preparation.words.split(" ")
    assert abs(len(words) - 88_582) <= 5  # as the Tokenizer of Keras counts them; copies differ in single reviews
    assert words[:10] == ["the", "and", "a", "of", "to", "is", "br", "in", "it", "i"]
    start = "this film was just brilliant casting location scenery story direction everyone's really suited the part"
    numbers = [words.index(word) + 4 for word in start.split()]
    assert train[0, 700 - 218 :][: len(numbers) + 1].tolist() == [1, *numbers]
    # The same as published, which counted rare words a little differently.
    published = [14, 22, 16, 43, 530, 973, 1622, 1385, 65, 458, 4468, 66, 3941, 4, 173]
    assert max(abs(a - b) / b for a, b in zip(numbers, published, strict=True)) < 0.01
    assert train.max() == 19_999
    assert data.train.targets.mean() + data.validation.targets.mean() / 4 == pytest.approx(12_500 / 20_000)
