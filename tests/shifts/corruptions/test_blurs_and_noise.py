"""Noise and blur against the original program's pictures and against closed forms."""

import numpy as np
import pytest
from scipy import ndimage

from golden import SEVERITIES, assert_alike, differences
from slimbayes.shifts.corruptions._ops import border_index, centre_zoom, gaussian_filter, line_blur
from slimbayes.shifts.corruptions.blur import (
    DEFOCUS_BLUR,
    GAUSSIAN_BLUR,
    GLASS_BLUR,
    MOTION_BLUR,
    ZOOM_BLUR,
    disk_kernel,
)
from slimbayes.shifts.corruptions.noise import GAUSSIAN_NOISE, IMPULSE_NOISE, SHOT_NOISE, SPECKLE_NOISE

EQUAL = (GAUSSIAN_NOISE, SHOT_NOISE, IMPULSE_NOISE, SPECKLE_NOISE, MOTION_BLUR, ZOOM_BLUR)
#: Sums that end within rounding of a whole grey level may be cut to the one below.
NEARLY_EQUAL = (DEFOCUS_BLUR, GLASS_BLUR, GAUSSIAN_BLUR)
SCIPY_BORDERS = {"replicate": "nearest", "half_mirror": "reflect", "whole_mirror": "mirror"}


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("side", [32, 224])
@pytest.mark.parametrize("corruption", EQUAL, ids=lambda one: one.name)
def test_equals_the_original(corruption, side, severity):
    assert_alike(differences(corruption, severity, side))


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("side", [32, 224])
@pytest.mark.parametrize("corruption", NEARLY_EQUAL, ids=lambda one: one.name)
def test_equals_the_original_but_for_ties(corruption, side, severity):
    assert_alike(differences(corruption, severity, side), share=0.006)


@pytest.mark.parametrize("border", SCIPY_BORDERS)
@pytest.mark.parametrize(("sigma", "truncate"), [(0.05, 4.0), (0.25, 4.0), (1.0, 3.0), (6.0, 4.0), (40.0, 3.0)])
def test_gaussian_filter_is_scipys(sigma, truncate, border):
    values = np.random.default_rng(0).random((3, 20, 20, 2))
    expected = ndimage.gaussian_filter(values, (0, sigma, sigma, 0), truncate=truncate, mode=SCIPY_BORDERS[border])
    np.testing.assert_allclose(gaussian_filter(values, sigma, truncate, border), expected, rtol=1e-13)
    np.testing.assert_allclose(
        gaussian_filter(values[..., 0], sigma, truncate, border), expected[..., 0], rtol=1e-13
    )  # no channels


@pytest.mark.parametrize("border", SCIPY_BORDERS)
@pytest.mark.parametrize("side", [1, 2, 5])
def test_border_index_continues_a_line_as_numpy_pads_it(side, border):
    mode = {"replicate": "edge", "half_mirror": "symmetric", "whole_mirror": "reflect"}[border]
    expected = np.pad(np.arange(side), 11, mode=mode)
    assert border_index(np.arange(-11, side + 11), side, border).tolist() == expected.tolist()


@pytest.mark.parametrize("factor", [1.0, 1.01, 1.25, 1.75, 2.25, 4.5])
@pytest.mark.parametrize("side", [8, 32, 33])
def test_centre_zoom_is_scipys_zoom_of_the_crop(side, factor):
    values = np.random.default_rng(0).random((2, side, side, 3))
    crop = int(np.ceil(side / factor))
    first = (side - crop) // 2
    inner = values[:, first : first + crop, first : first + crop]
    enlarged = ndimage.zoom(inner, (1, factor, factor, 1), order=1, mode="nearest")
    skipped = (enlarged.shape[1] - side) // 2
    expected = enlarged[:, skipped : skipped + side, skipped : skipped + side]
    np.testing.assert_allclose(centre_zoom(values, factor), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("radius", "softness", "cells", "total"),
    [
        (0.5, 0.4, 1, 1),
        (1, 0.2, 5, 1),
        (1.5, 0.1, 9, 1),
        (3, 0.1, 29, 1),
        (8, 0.5, 197, 1.01298),
        (10, 0.5, 317, 1.01079),
    ],
)
def test_disk_kernel_has_the_original_cells_and_sum(radius, softness, cells, total):
    kernel = disk_kernel(radius, softness)
    assert kernel.sum() == pytest.approx(total, abs=1e-5)
    assert (kernel > 0.5 / cells).sum() == cells
    np.testing.assert_allclose(kernel, kernel.T, rtol=1e-6)


def test_line_blur_is_a_plain_loop_over_taps():
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (3, 9, 9, 3), dtype=np.uint8)
    angles = np.array([-45.0, 10.0, -120.0])
    weights = np.exp(-(np.arange(7.0) ** 2) / (2 * 2.0**2))
    weights /= weights.sum()
    expected = np.zeros(images.shape)
    for image, row, column in np.ndindex(3, 9, 9):
        for tap, weight in enumerate(weights):
            radians = np.deg2rad(angles[image])
            down = row + int(np.ceil(tap * np.sin(radians) - 0.5))
            right = column + int(np.ceil(tap * np.cos(radians) - 0.5))
            expected[image, row, column] += weight * images[image, min(max(down, 0), 8), min(max(right, 0), 8)]
    expected = (257 * expected + 0.5).astype(int) // 257
    assert_alike(line_blur(images, 3, 2.0, angles).astype(int) - expected, share=0.001)


def test_glass_blur_visits_in_order():
    """A plain loop as in the original, at a distance where a pixel may be copied twice in one pass."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (2, 9, 9, 1), dtype=np.uint8)
    constants = (0.05, 2, 2)  # too narrow to blur at all
    draws = [GLASS_BLUR.draw(generator, image, constants)[0] for image in images]
    expected = images.copy()
    for image, offsets in zip(expected, draws, strict=True):
        for visits in offsets:
            positions = ((row, column) for row in range(7, 2, -1) for column in range(7, 2, -1))
            for (row, column), (right, down) in zip(positions, visits, strict=True):
                image[row, column] = image[row + down, column + right]
    np.testing.assert_array_equal(GLASS_BLUR.apply(images, constants, np.stack(draws)), expected)
    assert (expected != images).any()


def drawn(corruption, constants, grey):
    image = np.full((200, 200, 3), grey, np.uint8)
    draws = corruption.draw(np.random.default_rng(0), image, constants)
    return corruption.apply(image[None], constants, *(one[None] for one in draws)).astype(float)


def test_noise_has_its_variance():
    """120,000 values, whose fractions are cut off: 0.5 off the mean, 1/12 onto the variance; four standard errors."""
    values = 120_000
    for corruption, constants, scale in (
        (GAUSSIAN_NOISE, 0.05, 0.05 * 255),
        (SPECKLE_NOISE, 0.1, 0.1 * 100),
        (SHOT_NOISE, 500, 255 * (100 / 255 / 500) ** 0.5),
    ):
        noisy = drawn(corruption, constants, grey=100)
        assert noisy.mean() == pytest.approx(99.5, abs=4 * scale / values**0.5 + 0.05)
        assert noisy.std() == pytest.approx((scale**2 + 1 / 12) ** 0.5, rel=4 / (2 * values) ** 0.5 + 0.005)


def test_impulses_replace_a_share_of_values_by_as_much_salt_as_pepper():
    noisy = drawn(IMPULSE_NOISE, 0.2, grey=100)
    error = 4 * (0.1 * 0.9 / noisy.size) ** 0.5
    assert (noisy == 255).mean() == pytest.approx(0.1, abs=error)
    assert (noisy == 0).mean() == pytest.approx(0.1, abs=error)
    assert (noisy == 100).mean() == pytest.approx(0.8, abs=2 * error)
