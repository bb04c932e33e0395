"""Conditions: what reaches the network, whatever the block, and how much passes through memory for it."""

import numpy as np
import pytest
import torch
from PIL import Image

from slimbayes.data.dataset import DataSet, Examples, Task
from slimbayes.data.digits import corrupt as corrupt_digits
from slimbayes.data.digits import load_digits
from slimbayes.data.folders import MissingData
from slimbayes.data.images import Images
from slimbayes.data.registry import load_data
from slimbayes.evaluation.conditions import conditions, corruption_source
from slimbayes.shifts import CONSTANTS, shifts_for
from slimbayes.shifts.corruptions import COMMON, EXTRA, corrupt
from slimbayes.shifts.corruptions import weather as frost_module

CLASSES = tuple("abcdefghij")


class Counted:
    """Examples that say how many of them were fetched at once."""

    def __init__(self, examples):
        self.examples, self.fetched = examples, []

    def __len__(self):
        return len(self.examples)

    def fetch(self, rows):
        self.fetched.append(len(rows))
        return self.examples.fetch(rows)


def images(count=20, name="cifar10", channels=3, side=32):
    """Return a data set of smooth random images."""
    coarse = torch.rand(count, channels, 4, 4, generator=torch.Generator().manual_seed(0))
    smooth = torch.nn.functional.interpolate(coarse, (side, side), mode="bilinear")
    examples = Counted(Examples(((255 * smooth).to(torch.uint8),), torch.arange(count) % 10))
    preparation = Images([0.5] * channels, [0.25] * channels, [side, side])
    return DataSet(
        name, examples, None, examples, Task("categorical", 10, (channels, side, side), CLASSES), preparation
    )


def write_cifar_c(folder, names):
    """Write CIFAR-10-C's files, sparse on disk; the first pixel of each block says its severity."""
    folder.mkdir()
    np.save(folder / "labels.npy", np.tile(np.arange(10_000) % 10, 5))
    for name in names:
        array = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.uint8, (50_000, 32, 32, 3))
        array[::10_000, 0, 0, 0] = np.arange(1, 6)


def names_and_severities(found):
    return [(one.name, one.severity) for one in found]


def test_clean_comes_first_and_is_what_training_saw():
    data = load_data("wine")
    clean, *others = conditions(data)
    rows = torch.tensor([5, 2])
    inputs, targets = clean.fetch(rows)
    expected = data.test.fetch(rows)
    assert torch.equal(inputs[0], data.preparation(*expected[0])[0])
    assert torch.equal(targets, expected[1])
    assert (clean.name, clean.severity, len(clean)) == ("clean", 0, len(data.test))
    assert names_and_severities(others) == [(name, s) for name in ("missing", "noise", "drift") for s in range(1, 6)]


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_corrupted_before_they_are_prepared(channels, tmp_path):
    data = images(channels=channels)
    found = conditions(data, folder=tmp_path, severities=[2], seed=3)
    assert [one.name for one in found] == ["clean", *COMMON]
    rows = torch.tensor([7, 19, 0])
    for one in found[1:]:
        (x,), y = one.fetch(rows)
        (raw,), expected = data.test.fetch(rows)
        corrupted = corrupt(raw, one.name, 2, seed=3, numbers=rows)
        torch.testing.assert_close(x, (corrupted.float() / 255 - 0.5) / 0.25)
        assert torch.equal(y, expected)


def test_extra_corruptions_and_lists():
    every = conditions(images(), corruptions="own", extra=True, severities=[1])
    assert [one.name for one in every[1:]] == [*COMMON, *EXTRA]
    some = conditions(images(), corruptions=["spatter", "fog"], severities=[5, 1])
    assert names_and_severities(some[1:]) == [("spatter", 5), ("spatter", 1), ("fog", 5), ("fog", 1)]


@pytest.mark.parametrize("make", [images, lambda: load_data("iris"), lambda: load_data("digits")])
def test_an_example_is_the_same_in_any_block(make):
    data = make()
    for one in conditions(data, severities=[3], limit=20):
        (whole,), _ = one.fetch(torch.arange(20))
        rows = torch.tensor([11, 4])
        assert torch.equal(one.fetch(rows)[0][0], whole[rows]), one.name


@pytest.mark.parametrize("make", [images, lambda: load_data("iris")])
def test_a_block_passes_through_memory_and_no_more(make):
    data = make()
    counted = Counted(data.test)
    data = DataSet(data.name, data.train, None, counted, data.task, data.preparation)
    found = conditions(data)
    assert max(counted.fetched, default=0) <= 1
    for one in found:
        counted.fetched.clear()
        (x,), _ = one.fetch(torch.arange(6))
        assert counted.fetched == [6]
        assert len(x) == 6


def test_limit_and_the_part_that_is_used():
    data = load_data("iris")
    assert {len(one) for one in conditions(data, limit=7)} == {7}
    assert {len(one) for one in conditions(data, limit=10**6)} == {30}
    without_test = DataSet("iris", data.train, data.validation, None, data.task, data.preparation)
    assert len(conditions(without_test)[0]) == len(data.validation)
    with pytest.raises(ValueError, match="iris has no test and no validation examples"):
        conditions(DataSet("iris", data.train, None, None, data.task, data.preparation))


def test_corrupted_examples_may_be_fewer_than_clean_ones():
    found = conditions(load_data("digits"), corruptions=["noise"], severities=[1, 5], limit=90, shifted_limit=20)
    assert [len(one) for one in found] == [90, 20, 20]
    with pytest.raises(ValueError, match="shifted_limit"):
        conditions(load_data("digits"), shifted_limit=0)


def test_digits_are_those_of_the_demo():
    found = conditions(load_data("digits"))
    assert len(found) == 26
    (test, labels) = load_digits().test
    for one in found[1:]:
        (x,), y = one.fetch(torch.arange(500))
        assert torch.equal(x, corrupt_digits(test, one.name, one.severity))
        assert torch.equal(y, labels)
    noisy = (conditions(load_data("digits"), corruptions=["noise"], seed=seed)[5] for seed in (0, 1))
    assert not torch.equal(*(one.fetch(torch.arange(4))[0][0] for one in noisy))


def test_shifts_are_numbered_by_the_rows_of_the_test_part():
    data = load_data("iris")
    noisy = conditions(data, corruptions=["noise"], severities=[4], seed=9)[1]
    rows = torch.tensor([8, 3])
    clean = data.preparation(*data.test.fetch(rows)[0])
    assert torch.equal(noisy.fetch(rows)[0][0], shifts_for(data)["noise"](clean, 4, seed=9, numbers=rows)[0])
    assert CONSTANTS["noise"][3] == 0.6


# ---------------------------------------------------------------------- official files


def test_official_files_are_used_when_all_are_there(tmp_path):
    write_cifar_c(tmp_path / "CIFAR-10-C", ["fog", "snow"])
    data = images(count=20)
    found = conditions(data, folder=tmp_path, corruptions=["fog", "snow"], limit=12)
    assert corruption_source(data, ["fog", "snow"], tmp_path) == "official"
    assert {len(one) for one in found} == {12}
    for one in found[1:]:
        (x,), y = one.fetch(torch.arange(2))
        assert x[0, 0, 0, 0] == pytest.approx((one.severity / 255 - 0.5) / 0.25)
        assert y.tolist() == [0, 1]


def test_one_official_file_is_open_at_a_time(tmp_path):
    write_cifar_c(tmp_path / "CIFAR-10-C", ["fog"])
    found = conditions(images(), folder=tmp_path, corruptions=["fog"])
    files = found[1].raw.files
    assert files._last is None
    for one in found[1:]:
        one.fetch(torch.arange(1))
        assert files._last[0] == ("fog", one.severity)


def test_official_files_that_lack_some_are_not_mixed_with_ours(tmp_path):
    write_cifar_c(tmp_path / "CIFAR-10-C", ["fog"])
    assert corruption_source(images(), "auto", tmp_path) == "own"
    assert not hasattr(conditions(images(), folder=tmp_path, severities=[1])[1].raw, "files")
    with pytest.raises(MissingData, match=r"lacks gaussian_noise, .*corruptions='own'"):
        conditions(images(), folder=tmp_path, corruptions="official")


def test_official_files_that_are_not_there(tmp_path):
    with pytest.raises(MissingData, match="CIFAR-10-C"):
        conditions(images(), folder=tmp_path, corruptions="official")
    with pytest.raises(ValueError, match="'cifar10', 'cifar100', 'imagenet', but got 'mnist'"):
        conditions(images(name="mnist"), folder=tmp_path, corruptions="official")
    with pytest.raises(ValueError, match="only CIFAR-10, CIFAR-100 and ImageNet have official"):
        conditions(load_data("iris"), corruptions="official")


def test_official_imagenet_files(tmp_path):
    for name in "ab":
        for severity in (1, 2):
            place = tmp_path / "ImageNet-C" / "blur" / "fog" / str(severity) / name
            place.mkdir(parents=True)
            for number in range(5):
                Image.new("RGB", (32, 32), (50 * severity, ord(name), number)).save(place / f"{number}.png")
    data = images(count=10, name="imagenet")
    task = Task("categorical", 2, (3, 32, 32), ("b", "a"))
    data = DataSet("imagenet", data.train, None, data.test, task, data.preparation)
    found = conditions(data, folder=tmp_path, corruptions=["fog"], severities=[1, 2])
    for one in found[1:]:
        (x,), y = one.fetch(torch.arange(10))
        pixels = ((x[:, :, 0, 0] * 0.25 + 0.5) * 255).round()
        assert (pixels[:, 0] == 50 * one.severity).all()
        assert torch.equal(pixels[:, 1], torch.where(y == 0, ord("b"), ord("a")).float())
        assert 0 < y[:5].sum() < 5  # not sorted by class


# ---------------------------------------------------------------------- errors


def test_frost_without_its_photographs_is_an_error_before_anything_is_evaluated(monkeypatch):
    def lacking(name):
        raise ImportError(name)

    monkeypatch.setattr(frost_module, "files", lacking)
    for cached in (frost_module._full_photograph, frost_module.frost_photograph):
        cached.cache_clear()
    with pytest.raises(ImportError, match="torch-uncertainty-assets"):
        conditions(images())
    assert len(conditions(images(), corruptions=[name for name in COMMON if name != "frost"])) == 1 + 14 * 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corruptions": "all"}, "`corruptions` to be one of 'auto', 'own', 'official', 'none'"),
        ({"corruptions": ["nosie"]}, "Did you mean 'noise'"),
        ({"severities": [0]}, "`severities` to be a whole number from 1 to 5, but got 0"),
        ({"limit": 0}, "`limit` to be an integer of at least 1"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        conditions(load_data("iris"), **options)
    if "corruptions" in options:
        with pytest.raises(ValueError, match="Expected argument `corruptions` to be one of"):
            conditions(images(), **options)


def test_none_and_unknown_inputs_leave_the_clean_examples():
    assert names_and_severities(conditions(images(), corruptions="none")) == [("clean", 0)]
    tokens = Examples((torch.zeros(3, 4, dtype=torch.int64),), torch.zeros(3))
    data = DataSet("arrays", tokens, None, tokens, Task("gaussian", 1, (4,)))
    assert names_and_severities(conditions(data)) == [("clean", 0)]
    assert corruption_source(data, "auto") == corruption_source(images(), "none") == "none"
    assert corruption_source(load_data("digits"), "auto") == corruption_source(load_data("iris"), ["noise"]) == "own"
