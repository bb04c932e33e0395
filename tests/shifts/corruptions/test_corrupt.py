"""The frame around all corruptions: seeds, sizes, grey images, arguments, statistics."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import slimbayes as sb
from golden import ORDER, golden
from slimbayes.shifts.corruptions import COMMON, CORRUPTIONS, EXTRA, corrupt

RANDOM = [name for name, one in CORRUPTIONS.items() if one.draw is not None]
FIXED = [name for name, one in CORRUPTIONS.items() if one.draw is None]


def pictures(count=4, side=32, channels=3):
    """Smooth pictures with all grey levels, bright and dark."""
    rows, columns = torch.meshgrid(torch.linspace(0, 6, side), torch.linspace(0, 4, side), indexing="ij")
    phases = torch.linspace(0, 5, count * channels).view(count, channels, 1, 1)
    return (127.5 + 127.5 * torch.sin(rows + phases) * torch.cos(columns - phases)).to(torch.uint8)


@pytest.fixture(scope="module")
def statistics():
    """The first 64 test images of CIFAR-10, and the original's mean, deviation and mean change over repeats."""
    with np.load(Path(__file__).with_name("statistics32.npz")) as arrays:
        return dict(arrays)


def test_names_are_those_of_the_paper_in_its_order():
    assert (*COMMON, *EXTRA) == tuple(CORRUPTIONS) == ORDER
    assert len(COMMON) == 15
    assert all(name == one.name for name, one in CORRUPTIONS.items())
    assert all(len(one.constants[side]) == 5 for one in CORRUPTIONS.values() for side in (32, 64, 224))


@pytest.mark.parametrize("severity", [1, 3, 5, *(pytest.param(one, marks=pytest.mark.slow) for one in (2, 4))])
@pytest.mark.parametrize("name", RANDOM)
def test_statistics_are_the_originals(name, severity, statistics):
    """Four repeats against the original's six: t of 8 degrees of freedom, at 7 a chance of 1e-4; plus 0.05 grey levels.

    The deviation is pooled, since that of six repeats alone is at times a quarter of the true one.
    """
    images = torch.from_numpy(statistics["images"]).permute(0, 3, 1, 2)
    centre, spread = statistics[name][severity - 1]
    repeats = [corrupt(images, name, severity, seed=seed).double() for seed in range(4)]
    ours = np.array([(one.mean(), one.std(unbiased=False), (one - images).abs().mean()) for one in repeats])
    pooled = np.sqrt((3 * ours.var(0, ddof=1) + 5 * spread**2) / 8)
    assert (np.abs(ours.mean(0) - centre) <= 7 * pooled * (1 / 4 + 1 / 6) ** 0.5 + 0.05).all()


@pytest.mark.parametrize("name", FIXED)
def test_fixed_ones_have_the_originals_statistics(name, statistics):
    images = torch.from_numpy(statistics["images"]).permute(0, 3, 1, 2)
    for severity, (centre, _) in enumerate(statistics[name], start=1):
        ours = corrupt(images, name, severity).double()
        change = (ours - images).abs().mean()
        np.testing.assert_allclose([ours.mean(), ours.std(unbiased=False), change], centre, atol=0.05)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_an_image_is_corrupted_alike_in_any_batch(name):
    images, numbers = pictures(5), torch.tensor([7, 0, 123_456, 3, 9])
    whole = corrupt(images, name, 3, seed=4, numbers=numbers)
    order = torch.tensor([4, 2, 0, 1, 3])
    torch.testing.assert_close(corrupt(images[order], name, 3, seed=4, numbers=numbers[order]), whole[order])
    one_by_one = [corrupt(images[i : i + 1], name, 3, seed=4, numbers=[int(numbers[i])]) for i in range(5)]
    torch.testing.assert_close(torch.cat(one_by_one), whole)


def test_blocks_within_a_batch_do_not_matter():
    images = pictures(60)  # more than are worked on at a time
    for name in ("glass_blur", "contrast"):
        whole = corrupt(images, name, 4)
        last = corrupt(images[50:], name, 4, numbers=range(50, 60))
        torch.testing.assert_close(last, whole[50:])


@pytest.mark.parametrize("name", RANDOM)
def test_seeds_numbers_and_severities_give_other_draws(name):
    image = pictures(1, side=64)
    results = [corrupt(image, name, 4, seed=seed, numbers=[number]) for seed in (0, 1) for number in (0, 1)]
    assert len({one.numpy().tobytes() for one in results}) == 4
    torch.testing.assert_close(corrupt(image, name, 4), results[0])


def test_the_global_generators_are_left_alone():
    torch.manual_seed(0)
    state, legacy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    for name in CORRUPTIONS:
        corrupt(pictures(1, side=8), name, 1)
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == legacy).all()  # noqa: NPY002


@pytest.mark.parametrize("side", [8, 28, 96])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_other_sizes_and_grey_images(name, channels, side):
    images = pictures(2, side, channels)
    before = images.clone()
    results = [corrupt(images, name, severity) for severity in (1, 3, 5)]
    for corrupted in results:
        assert corrupted.shape == images.shape
        assert corrupted.dtype == torch.uint8
        assert corrupted.is_contiguous()
    assert any((corrupted != images).any() for corrupted in results)
    assert torch.equal(images, before)


@pytest.mark.slow
@pytest.mark.parametrize("side", [128, 256])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_large_sizes(name, side):
    images = pictures(1, side)
    assert all(corrupt(images, name, severity).shape == images.shape for severity in range(1, 6))


@pytest.mark.parametrize("name", [name for name in FIXED if name != "jpeg_compression"])
def test_grey_is_the_luma_of_three_equal_channels(name):
    """Of those without draws; noise has another shape for grey images."""
    grey = pictures(3, channels=1)
    for severity in range(1, 6):
        coloured = corrupt(grey.expand(-1, 3, -1, -1), name, severity).double()
        luma = coloured[:, 0] * 0.299 + coloured[:, 1] * 0.587 + coloured[:, 2] * 0.114
        assert (corrupt(grey, name, severity)[:, 0] - luma).abs().max() <= 0.51


def test_constants_follow_the_side():
    for side, expected in ((48, 32), (49, 64), (144, 64), (145, 224)):
        images = pictures(1, side)
        assert torch.equal(corrupt(images, "contrast", 2), corrupt(images, "contrast", 2, constants=expected))
    images = torch.from_numpy(golden(32)["images"]).permute(0, 3, 1, 2)
    mild, strong = corrupt(images, "gaussian_noise", 1), corrupt(images, "gaussian_noise", 1, constants=224)
    assert not torch.equal(mild, strong)


def test_no_images_give_no_images():
    for name in CORRUPTIONS:
        assert corrupt(torch.zeros(0, 1, 28, 28, dtype=torch.uint8), name, 1, numbers=[]).shape == (0, 1, 28, 28)


def test_strided_images_are_read_in_their_order():
    images = torch.from_numpy(golden(32)["images"])
    strided = images.permute(0, 3, 1, 2)
    assert torch.equal(corrupt(strided, "fog", 2), corrupt(strided.contiguous(), "fog", 2))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": "frog"}, "`name`.*Did you mean 'f"),
        ({"severity": 0}, "`severity` to be an integer of at least 1, but got 0"),
        ({"severity": 6}, "`severity` to be an integer from 1 to 5, but got 6"),
        ({"severity": 2.0}, "`severity`"),
        ({"seed": -1}, "`seed` to be an integer of at least 0"),
        ({"constants": 28}, "`constants` to be 32, 64, 224 or None, but got 28"),
        ({"numbers": [0, 1]}, "`numbers` to be 4 integers"),
        ({"numbers": torch.zeros(4)}, "`numbers`"),
        ({"numbers": [0, 1, 2, -3]}, "`numbers`"),
        ({"numbers": [0, 1, 2, 2**63]}, r"`numbers`.*below 2 \*\* 63"),
        ({"numbers": [True, False, True, False]}, "`numbers`"),
        ({"numbers": 4}, "`numbers`.*got 4"),
        ({"images": np.zeros((4, 3, 8, 8), np.uint8)}, "in a tensor, but got ndarray.*as_tensor"),
        ({"images": torch.rand(4, 3, 8, 8)}, "`images`.*float32.*before they are standardised"),
        ({"images": torch.zeros(4, 8, 8, 3, dtype=torch.uint8)}, "Permute their axes"),
        ({"images": torch.zeros(3, 8, 8, dtype=torch.uint8)}, "Permute their axes, or add one"),
        ({"images": torch.zeros(4, 3, 8, 9, dtype=torch.uint8)}, r"\(4, 3, 8, 9\).*square images: crop or resize"),
    ],
)
def test_wrong_arguments_are_named(changed, message):
    arguments = {"images": pictures(), "name": "fog", "severity": 1, **changed}
    with pytest.raises(ValueError, match=message):
        corrupt(**arguments)


def test_it_is_public():
    assert sb.corruptions.corrupt is corrupt


@pytest.mark.parametrize("kind", [np.uint8, np.uint32, np.uint64, np.int64])
def test_numbers_of_any_integer_type(kind):
    expected = corrupt(pictures(2), "gaussian_noise", 1, numbers=[3, 5])
    array = np.array([3, 5], kind)
    for numbers in (array, torch.from_numpy(array), list(torch.from_numpy(array)), (3, 5), list(array)):
        assert torch.equal(corrupt(pictures(2), "gaussian_noise", 1, numbers=numbers), expected)


def test_large_numbers_are_told_apart():
    image = torch.full((1, 1, 8, 8), 128, dtype=torch.uint8)
    large = (1, 1 + 2**31, 1 + 2**32, 1 + 2**53, 2**63 - 2, 2**63 - 1)
    assert len({corrupt(image, "gaussian_noise", 5, numbers=[n]).numpy().tobytes() for n in large}) == len(large)
    assert torch.equal(corrupt(image, "fog", np.int64(3), seed=np.uint8(7)), corrupt(image, "fog", 3, seed=7))


@pytest.mark.slow
def test_another_process_makes_the_same():
    code = (
        "import torch, hashlib; from slimbayes.shifts.corruptions import CORRUPTIONS, corrupt\n"
        "images = torch.arange(768).remainder(256).to(torch.uint8).view(1, 3, 16, 16)\n"
        "print([hashlib.md5(corrupt(images, name, 4, seed=2).numpy()).hexdigest() for name in CORRUPTIONS])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    images = torch.arange(768).remainder(256).to(torch.uint8).view(1, 3, 16, 16)
    ours = [hashlib.md5(corrupt(images, name, 4, seed=2).numpy()).hexdigest() for name in CORRUPTIONS]
    assert printed.stdout == f"{ours}\n"
