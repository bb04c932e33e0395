"""CIFAR's binary version: files written byte by byte, packed and unpacked, and the real ones."""

import io
import os
import tarfile

import pytest
import torch

from slimbayes.data import cifar
from slimbayes.data.augmentation import PadCropFlip
from slimbayes.data.cifar import load_cifar10, load_cifar100
from slimbayes.data.folders import MissingData
from slimbayes.data.registry import load_data

NAMES_10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
NAMES_100 = [f"thing_{number}" for number in range(100)]


def row(*labels):
    """An image whose three planes are filled with the last label plus 0, 50 and 100, but for its first row."""
    planes = [bytes(range(32)) + bytes([labels[-1] + 50 * plane]) * 992 for plane in range(3)]
    return bytes(labels) + b"".join(planes)


@pytest.fixture
def small(monkeypatch):
    """Sets of the official layout with few images: what each file holds."""
    files_10 = {f"data_batch_{i}.bin": row(i) + row(9 - i) for i in range(1, 6)}
    files_10 |= {"test_batch.bin": row(7) + row(0), "batches.meta.txt": ("\n".join(NAMES_10) + "\n\n").encode()}
    files_100 = {"train.bin": row(3, 99) + row(19, 5) + row(0, 42), "test.bin": row(1, 2)}
    files_100 |= {"fine_label_names.txt": "\n".join(NAMES_100).encode()}
    few_10 = cifar._CIFAR10._replace(train=dict.fromkeys(cifar._CIFAR10.train, 2), test={"test_batch.bin": 2})
    monkeypatch.setattr(cifar, "_CIFAR10", few_10)
    monkeypatch.setattr(cifar, "_CIFAR100", cifar._CIFAR100._replace(train={"train.bin": 3}, test={"test.bin": 1}))
    return {"cifar10": files_10, "cifar100": files_100}


FOLDERS = {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}
ARCHIVES = {"cifar10": "cifar-10-binary.tar.gz", "cifar100": "cifar-100-binary.tar.gz"}


def write_folder(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def write_archive(path, inside, files):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"{inside}/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


LAYOUTS = {
    "unpacked": lambda root, name, files: write_folder(root / FOLDERS[name], files),
    "the folder itself": lambda root, name, files: write_folder(root, files),
    "below the set's name": lambda root, name, files: write_folder(root / name / FOLDERS[name], files),
    "archive": lambda root, name, files: write_archive(root / ARCHIVES[name], FOLDERS[name], files),
    "archive below": lambda root, name, files: write_archive(root / name / ARCHIVES[name], FOLDERS[name], files),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FOLDERS)
def test_the_files_are_found_and_read(name, layout, small, tmp_path):
    LAYOUTS[layout](tmp_path, name, small[name])
    data = load_data(name, tmp_path, validation=1)
    labels = [1, 8, 2, 7, 3, 6, 4, 5, 5, 4] if name == "cifar10" else [99, 5, 42]
    assert data.train.targets.tolist() == labels[:-1]
    assert data.validation.targets.tolist() == labels[-1:]
    assert data.test.targets.tolist() == ([7, 0] if name == "cifar10" else [2])
    assert data.task.classes == tuple(NAMES_10 if name == "cifar10" else NAMES_100)
    assert (data.task.outputs, data.task.input_shape) == (len(data.task.classes), (3, 32, 32))
    (x,), y = data.train.fetch(torch.tensor([1, 0]))
    assert y.tolist() == [labels[1], labels[0]]
    assert x.dtype == torch.uint8
    assert x.is_contiguous()
    for one, label in zip(x, y.tolist(), strict=True):
        assert one[:, 0].tolist() == [list(range(32))] * 3  # the first row, along the columns
        assert one[:, 1:].flatten(1).unique(dim=1).T.tolist() == [[label, label + 50, label + 100]]


@pytest.mark.parametrize("load", [load_cifar10, load_cifar100])
def test_options(load, small, tmp_path):
    name = load.__name__.removeprefix("load_")
    write_folder(tmp_path, small[name])
    assert load(tmp_path, validation=0).validation is None
    assert load(tmp_path, validation=1).augmentation == PadCropFlip(4)
    assert load(tmp_path, validation=1, pad=2).augmentation == PadCropFlip(2)
    assert load(tmp_path, validation=1, augment=False).augmentation is None
    paper = load(tmp_path, validation=1, normalise="paper").preparation
    assert (paper.mean, paper.std) == ([0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010])
    assert load(tmp_path, validation=1, normalise="unit").preparation.std == [1, 1, 1]
    with pytest.raises(ValueError, match="`normalise`"):
        load(tmp_path, normalise="standrd")
    with pytest.raises(ValueError, match="`validation`"):
        load(tmp_path, validation=50)
    with pytest.raises(ValueError, match="`pad`"):
        load(tmp_path, pad=-1)


@pytest.mark.parametrize("name", FOLDERS)
def test_missing_files_say_how_to_get_them(name, small, tmp_path):
    with pytest.raises(MissingData) as error:
        load_data(name, tmp_path)
    words = [*small[name], str(tmp_path), ARCHIVES[name], f"slimbayes data get {name}", "--data-dir", "SLIMBAYES_DATA"]
    for word in (*words, "https://www.cs.toronto.edu/~kriz/cifar.html"):
        assert word in str(error.value)


def test_only_what_is_missing_is_named(small, tmp_path):
    write_folder(tmp_path / FOLDERS["cifar10"], small["cifar10"])
    (tmp_path / FOLDERS["cifar10"] / "data_batch_3.bin").unlink()
    with pytest.raises(MissingData, match=r"Found no data_batch_3.bin in .*cifar-10-batches-bin"):
        load_cifar10(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("data_batch_2.bin", row(1), "data_batch_2.bin should have 2 x 3073 = 6146 bytes, but has 3073"),
        ("test_batch.bin", row(1) + row(2) + b"\0", "test_batch.bin should have .* but has 6147"),
        ("data_batch_5.bin", row(1) + row(10), "data_batch_5.bin has the label 10, but there are 10 classes"),
        ("batches.meta.txt", b"cat\ndog\n", "batches.meta.txt should name 10 classes, but names 2"),
    ],
)
@pytest.mark.parametrize("layout", ["unpacked", "archive"])
def test_a_broken_file_is_named(file, content, words, layout, small, tmp_path):
    LAYOUTS[layout](tmp_path, "cifar10", small["cifar10"] | {file: content})
    with pytest.raises(ValueError, match=words):
        load_cifar10(tmp_path, validation=1)


def test_a_broken_archive_is_named(small, tmp_path):
    path = tmp_path / ARCHIVES["cifar10"]
    write_archive(path, FOLDERS["cifar10"], small["cifar10"])
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"<html>not found</html>", b""):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="cifar-10-binary.tar.gz is truncated or damaged"):
            load_cifar10(tmp_path)
    write_archive(path, FOLDERS["cifar10"], {"readme.html": b"hello"})
    with pytest.raises(ValueError, match=r"tar.gz lacks data_batch_1.bin"):
        load_cifar10(tmp_path)


real = pytest.mark.skipif(
    "SLIMBAYES_DATA" not in os.environ, reason="SLIMBAYES_DATA names no folder with the real data"
)


@real
def test_the_real_cifar10():
    data = load_data("cifar10", os.environ["SLIMBAYES_DATA"], validation=0)
    assert data.train.targets.bincount().tolist() == [5000] * 10
    assert data.test.targets.bincount().tolist() == [1000] * 10
    assert data.task.classes == tuple(NAMES_10)
    # The frog and the cat with which the two splits begin.
    assert [data.task.classes[label] for label in data.train.targets[:4]] == ["frog", "truck", "truck", "deer"]
    assert [data.task.classes[label] for label in data.test.targets[:4]] == ["cat", "ship", "ship", "airplane"]
    assert data.train.inputs[0][0, :, 0, 0].tolist() == [59, 62, 63]
    assert data.test.inputs[0][0, :, 0, 0].tolist() == [158, 112, 49]
    assert_standard(data)


@real
def test_the_real_cifar100():
    data = load_data("cifar100", os.environ["SLIMBAYES_DATA"], validation=10_000)
    both = torch.cat((data.train.targets, data.validation.targets))
    assert [len(part) for part in (data.train, data.validation, data.test)] == [40_000, 10_000, 10_000]
    assert both.bincount().tolist() == [500] * 100
    assert data.test.targets.bincount().tolist() == [100] * 100
    assert data.task.classes[:2] + data.task.classes[-1:] == ("apple", "aquarium_fish", "worm")
    assert_standard(load_data("cifar100", os.environ["SLIMBAYES_DATA"], validation=0))


def assert_standard(data):
    """The means and standard deviations of the training images, computed from their counts, are the ones in use."""
    (images,) = data.train.inputs
    for channel in range(3):
        counts = images[:, channel].flatten().bincount(minlength=256).double()
        values = torch.arange(256).double() / 255
        mean = (counts * values).sum() / counts.sum()
        std = ((counts * (values - mean) ** 2).sum() / counts.sum()).sqrt()
        assert round(mean.item(), 4) == data.preparation.mean[channel]
        assert round(std.item(), 4) == data.preparation.std[channel]


def test_validation_may_be_the_first_test_images(tmp_path, small):
    write_folder(tmp_path, small["cifar10"])
    whole = load_cifar10(tmp_path, validation=0)
    data = load_cifar10(tmp_path, validation=1, validation_from="test", normalise="imagenet")
    assert torch.equal(data.train.targets, whole.train.targets)
    assert (data.validation.targets.tolist(), data.test.targets.tolist()) == ([7], [0])
    assert torch.equal(data.validation.inputs[0], whole.test.inputs[0][:1])
    (black,) = data.preparation(torch.zeros(1, 3, 32, 32, dtype=torch.uint8))
    assert torch.allclose(black[0, :, 0, 0], -torch.tensor([0.485 / 0.229, 0.456 / 0.224, 0.406 / 0.225]))
    with pytest.raises(ValueError, match="validation_from"):
        load_cifar10(tmp_path, validation_from="nowhere")
