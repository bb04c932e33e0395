"""CIFAR-C and ImageNet-C in their published layouts, made by the tests."""

import os

import numpy as np
import pytest
import torch
from PIL import Image

from slimbayes.data.corrupted import cifar_c_corruptions, imagenet_c_corruptions, load_cifar_c, load_imagenet_c
from slimbayes.data.folders import MissingData
from slimbayes.data.images import Images

ROWS = 50_000


def write_cifar_c(folder, classes=10, corruptions=("fog", "glass_blur")):
    """Write files of full size, empty (and sparse on disk) but for the first and last image of each severity."""
    folder.mkdir(exist_ok=True)
    np.save(folder / "labels.npy", np.tile(np.arange(10_000) % classes, 5))
    for number, name in enumerate(corruptions):
        path = folder / f"{name}.npy"
        array = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(ROWS, 32, 32, 3))
        for severity in range(1, 6):
            array[(severity - 1) * 10_000, 1, 2] = [severity, number, 77]
            array[severity * 10_000 - 1, 31, 31] = [100 + severity, number, 88]
        array.flush()


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_each_severity_is_its_own_block(severity, tmp_path):
    write_cifar_c(tmp_path / "CIFAR-10-C")
    for number, name in enumerate(("fog", "glass_blur")):
        examples = load_cifar_c(tmp_path, name, severity)
        assert len(examples) == 10_000
        (x,), y = examples.fetch(torch.tensor([0, 9_999]))
        assert (x.shape, x.dtype, y.dtype) == ((2, 3, 32, 32), torch.uint8, torch.int64)
        assert x[0, :, 1, 2].tolist() == [severity, number, 77]
        assert x[1, :, 31, 31].tolist() == [100 + severity, number, 88]
        assert x.count_nonzero() == (4, 6)[number]
        assert y.tolist() == [0, 9]


def test_images_stay_in_the_file_and_can_be_prepared(tmp_path):
    write_cifar_c(tmp_path)
    before = (tmp_path / "fog.npy").stat().st_mtime_ns
    examples = load_cifar_c(tmp_path, "fog", 2)
    (images,) = examples.inputs
    images[0] = 9  # copy on write: the published file does not change
    assert load_cifar_c(tmp_path, "fog", 2).inputs[0][0].max() == 77
    assert (tmp_path / "fog.npy").stat().st_mtime_ns == before
    (x,) = Images([0.0] * 3, [1.0] * 3, [32, 32])(*load_cifar_c(tmp_path, "fog", 2).fetch(torch.tensor([0]))[0])
    assert x.is_contiguous()
    torch.testing.assert_close(x[0, :, 1, 2] * 255, torch.tensor([2.0, 0.0, 77.0]))


def test_the_corruptions_are_listed_and_misspellings_helped(tmp_path):
    write_cifar_c(tmp_path / "CIFAR-100-C", classes=100)
    assert cifar_c_corruptions(tmp_path, 100) == ["fog", "glass_blur"]
    assert load_cifar_c(tmp_path, "fog", 1, classes=100).targets.max() == 99
    with pytest.raises(ValueError, match="`corruption`.*Did you mean 'glass_blur'"):
        load_cifar_c(tmp_path, "glas_blur", 1, classes=100)
    with pytest.raises(ValueError, match="labels.npy should hold labels from 0 to 9, but has 99"):
        load_cifar_c(tmp_path / "CIFAR-100-C", "fog", 1, classes=10)


@pytest.mark.parametrize("severity", [0, 6, 1.5])
def test_a_wrong_severity_is_named(severity, tmp_path):
    for load in (load_cifar_c, load_imagenet_c):
        with pytest.raises(ValueError, match="`severity`"):
            load(tmp_path, "fog", severity)
    with pytest.raises(ValueError, match="`classes` to be 10 or 100"):
        load_cifar_c(tmp_path, "fog", 1, classes=20)


def test_missing_sets_say_how_to_get_them(tmp_path):
    for classes in (10, 100):
        with pytest.raises(MissingData) as error:
            load_cifar_c(tmp_path, "fog", 1, classes)
        words = [f"CIFAR-{classes}-C", str(tmp_path), f"slimbayes data get cifar{classes}_c", "zenodo.org"]
        for word in (*words, "--data-dir", "SLIMBAYES_DATA"):
            assert word in str(error.value)
    with pytest.raises(MissingData, match="ImageNet-C.*zenodo.org/records/2235448.*SLIMBAYES_DATA"):
        load_imagenet_c(tmp_path, "fog", 1)


class Evil:
    def __reduce__(self):
        return print, ("unpickled",)


def test_a_broken_file_is_named_and_nothing_is_unpickled(tmp_path, capsys):
    write_cifar_c(tmp_path, corruptions=["cut"])
    os.truncate(tmp_path / "cut.npy", (tmp_path / "cut.npy").stat().st_size - 1)
    np.save(tmp_path / "pickle.npy", np.array([Evil()], dtype=object), allow_pickle=True)
    (tmp_path / "text.npy").write_bytes(b"<html>not found</html>")
    (tmp_path / "empty.npy").write_bytes(b"")
    np.save(tmp_path / "short.npy", np.zeros((10_000, 32, 32, 3), np.uint8))
    np.save(tmp_path / "float.npy", np.lib.stride_tricks.as_strided(np.zeros(1), (ROWS, 1), (0, 0)))
    for name in ("pickle", "cut", "text", "empty", "short", "float"):
        with pytest.raises(ValueError, match=f"{name}.npy"):
            load_cifar_c(tmp_path, name, 1)
    assert capsys.readouterr().out == ""


# ---------------------------------------------------------------------- ImageNet-C


@pytest.mark.parametrize("sub", ["ImageNet-C", "ImageNet-C/weather", "."])
def test_imagenet_c(sub, tmp_path):
    for severity in (1, 2):
        for number, wnid in enumerate(("n01", "n02")):
            place = tmp_path / sub / "fog" / str(severity) / wnid
            place.mkdir(parents=True)
            value = np.full((224, 224, 3), 100 * number + 20 * severity, np.uint8)
            Image.fromarray(value).save(place / "ILSVRC2012_val_00000001.JPEG", quality=100)
    assert imagenet_c_corruptions(tmp_path) == ["fog"]
    files = load_imagenet_c(tmp_path, "fog", 2)
    (x,), y = files.fetch(torch.arange(2))
    assert x.shape == (2, 3, 224, 224)
    assert x.flatten(1).unique(dim=1).T.tolist() == [[40, 140]]
    assert y.tolist() == [0, 1]
    # Class numbers are those of the training set, of which only some may be here.
    assert load_imagenet_c(tmp_path, "fog", 1, classes=["n00", "n02", "n01"]).targets.tolist() == [1, 2]
    with pytest.raises(ValueError, match="n01, which is no class"):
        load_imagenet_c(tmp_path, "fog", 1, classes=["n02"])
    with pytest.raises(ValueError, match="no images in .*fog/5"):
        load_imagenet_c(tmp_path, "fog", 5)
    with pytest.raises(ValueError, match="`corruption`.*'fog'"):
        load_imagenet_c(tmp_path, "fogg", 1)
