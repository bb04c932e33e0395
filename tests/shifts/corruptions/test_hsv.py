import colorsys

import numpy as np

from slimbayes.shifts.corruptions.digital import hsv_of_rgb, rgb_of_hsv

GRID = np.stack(np.meshgrid(*[np.array([0, 1, 100, 254, 255]) / 255] * 3), -1).reshape(-1, 3)


def test_agrees_with_the_standard_library_on_greys_ties_black_and_white():
    expected = np.array([colorsys.rgb_to_hsv(*colour) for colour in GRID.tolist()])
    ours = np.stack(hsv_of_rgb(GRID), -1)
    # 0 and 1 are the same hue.
    turn = np.abs(ours[:, 0] - expected[:, 0])
    assert np.minimum(turn, 1 - turn).max() < 1e-12
    np.testing.assert_allclose(ours[:, 1:], expected[:, 1:], atol=1e-12)


def test_back_agrees_with_the_standard_library():
    expected = [colorsys.hsv_to_rgb(*triple) for triple in GRID.tolist()]
    np.testing.assert_allclose(rgb_of_hsv(*GRID.T), expected, atol=1e-12)


def test_there_and_back():
    np.testing.assert_allclose(rgb_of_hsv(*hsv_of_rgb(GRID)), GRID, atol=1e-12)
