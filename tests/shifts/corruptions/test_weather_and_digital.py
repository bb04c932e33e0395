"""Snow, frost, fog, colours, elastic transform, pixelation, JPEG and spatter against the original's pictures."""

import sys
from importlib.resources import files

import numpy as np
import pytest
import torch
from PIL import Image

from golden import SEVERITIES, assert_alike, differences, golden, replayed
from slimbayes.shifts.corruptions import weather
from slimbayes.shifts.corruptions.digital import (
    BRIGHTNESS,
    CONTRAST,
    ELASTIC_TRANSFORM,
    JPEG_COMPRESSION,
    PIXELATE,
    SATURATE,
)
from slimbayes.shifts.corruptions.weather import FOG, FROST, SNOW, SPATTER, frost_photograph

EQUAL = [FOG, BRIGHTNESS, CONTRAST, SATURATE, ELASTIC_TRANSFORM, PIXELATE]
NEARLY_EQUAL = [SNOW, SPATTER]
ALL = [*EQUAL, *NEARLY_EQUAL, FROST, JPEG_COMPRESSION]
SHARE_AT_TIES = 0.006

severities = pytest.mark.parametrize("severity", SEVERITIES)
sides = pytest.mark.parametrize("side", [32, 224])


@pytest.mark.parametrize("corruption", [*EQUAL, *NEARLY_EQUAL], ids=lambda one: one.name)
@severities
@sides
def test_original_pictures(corruption, severity, side):
    assert_alike(differences(corruption, severity, side), SHARE_AT_TIES if corruption in NEARLY_EQUAL else 0)


@severities
@sides
def test_frost_pictures(severity, side):
    """Equal where the photograph is the original's own; the first two are recompressed, by 4.4 and 2.8 grey levels."""
    added = FROST.constants[side][severity - 1][1]
    unlike = np.abs(differences(FROST, severity, side))
    for one, index in zip(unlike, _photographs(severity, side), strict=True):
        change = (4.4, 2.8, 2.8, 0, 0)[index]
        assert one.mean() <= 1.2 * added * change
        assert one.max() <= 12 * added * change


def _photographs(severity: int, side: int) -> list[int]:
    """Which photograph the original drew for each image: the first number of each of its streams."""
    count = len(golden(side)["images"])
    return [np.random.RandomState((8 * 5 + severity - 1) * 1000 + i).randint(5) for i in range(count)]


@severities
def test_jpeg_by_another_codec(severity):
    """Two codecs are 0.55 to 0.6 grey levels apart at this size (those of small images: ``test_corrupt.py``)."""
    difference = differences(JPEG_COMPRESSION, severity, 224)
    assert np.abs(difference).mean() < 1
    assert abs(difference.mean()) < 0.2


@pytest.mark.parametrize("corruption", ALL, ids=lambda one: one.name)
@pytest.mark.parametrize("side", [1, 2, 3])
def test_smallest_sides(corruption, side):
    images = np.arange(3 * side * side, dtype=np.uint8).reshape(1, side, side, 3)
    for severity in SEVERITIES:
        assert replayed(corruption, images, severity, 224).shape == images.shape


@pytest.mark.parametrize(
    "corruption", [FOG, CONTRAST, ELASTIC_TRANSFORM, PIXELATE, JPEG_COMPRESSION], ids=lambda c: c.name
)
def test_one_channel_is_as_three_equal_ones(corruption):
    grey = golden(32)["images"][..., :1]
    one, three = (replayed(corruption, images, 3, 32) for images in (grey, grey.repeat(3, -1)))
    np.testing.assert_array_equal(one.repeat(3, -1), three)


@pytest.mark.parametrize("corruption", [FOG, CONTRAST, PIXELATE, JPEG_COMPRESSION, SATURATE], ids=lambda c: c.name)
def test_black_stays_black(corruption):
    black = np.zeros((1, 32, 32, 3), np.uint8)
    np.testing.assert_array_equal(replayed(corruption, black, 3, 32), black)


@pytest.mark.parametrize("side", [8, 28, 96, 256])
@pytest.mark.parametrize("factor", [0.95, 0.65, 0.4, 0.25])
def test_pixelate_is_the_box_filter_of_pillow(side, factor):
    image = np.random.default_rng(side).integers(0, 256, (side, side, 3)).astype(np.uint8)
    cells = int(side * factor)
    small = Image.fromarray(image).resize((cells, cells), Image.Resampling.BOX)
    expected = np.asarray(small.resize((side, side), Image.Resampling.BOX))
    np.testing.assert_array_equal(PIXELATE.apply(image[None], factor)[0], expected)


def test_spatter_without_a_drop_leaves_the_image():
    images = golden(32)["images"]
    dry = np.zeros(images.shape[:3])
    for constants in SPATTER.constants[32]:
        np.testing.assert_array_equal(SPATTER.apply(images, constants, dry), images)


def _file(index: int) -> np.ndarray:
    with files("torch_uncertainty_assets.frost").joinpath(f"frost{index}.jpg").open("rb") as stream:
        return np.asarray(Image.open(stream))


def test_small_frost_is_every_fifth_pixel():
    for index, file in enumerate((1, 2, 2, 3, 4)):
        np.testing.assert_array_equal(frost_photograph(index, 0.2, 32), _file(file)[2::5, 2::5])


@pytest.mark.parametrize(("reduction", "side", "factor"), [(0.3, 64, 0.3), (0.3, 96, 97 / 350), (1, 400, 401 / 350)])
def test_frost_is_resized_linearly_and_large_enough(reduction, side, factor):
    pixels = torch.from_numpy(_file(3).copy()).permute(2, 0, 1)[None].double()
    height, width = (round(length * max(reduction, factor)) for length in pixels.shape[2:])
    expected = torch.nn.functional.interpolate(
        pixels, scale_factor=max(reduction, factor), mode="bilinear", recompute_scale_factor=False
    )[0].permute(1, 2, 0)
    ours = frost_photograph(3, reduction, side)
    assert ours.shape == (height, width, 3)
    assert min(ours.shape[:2]) > side
    rows, columns = expected.shape[:2]
    assert np.abs(ours[:rows, :columns] - expected.numpy()).max() <= 0.5 + 1e-6


def test_frost_draws_each_photograph_and_place():
    """Counts of 2000 draws within 4.5 binomial standard errors; positions reach both ends but the last."""
    random, image = np.random.default_rng(0), np.zeros((32, 32, 3), np.uint8)
    positions = np.array([FROST.draw(random, image, FROST.constants[32][0])[0] for _ in range(2000)])
    counts = np.bincount(positions[:, 0], minlength=5)
    assert np.abs(counts - 400).max() < 4.5 * (2000 * 0.2 * 0.8) ** 0.5
    rows = positions[np.isin(positions[:, 0], (1, 2)), 1]
    assert (rows.min(), rows.max()) == (0, 315 // 5 - 32 - 1)


def test_frost_without_the_photographs(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_uncertainty_assets.frost", None)
    weather.frost_photograph.cache_clear()
    weather._full_photograph.cache_clear()
    with pytest.raises(ImportError, match=r"pip install torch-uncertainty-assets .*slimbayes\[report\]"):
        FROST.draw(np.random.default_rng(0), np.zeros((32, 32, 3), np.uint8), FROST.constants[32][0])


def test_jpeg_without_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"pillow: pip install .*slimbayes\[report\]"):
        JPEG_COMPRESSION.apply(np.zeros((1, 8, 8, 3), np.uint8), 50)
