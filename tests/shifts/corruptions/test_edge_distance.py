import numpy as np
import pytest

from slimbayes.shifts.corruptions.weather import canny_edges, chamfer_distance


def cost(down: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The cheapest way over (down, right) with steps, diagonals and knight's moves, in closed form."""
    long, short = np.maximum(abs(down), abs(right)), np.minimum(abs(down), abs(right))
    return np.where(
        2 * short <= long,
        (long - 2 * short) + 2.1969 * short,
        2.1969 * (long - short) + 1.4 * (2 * short - long),
    )


@pytest.mark.parametrize("shape", [(1, 9), (9, 1), (12, 17)])
def test_chamfer_is_the_least_cost_to_any_marked_pixel(shape):
    random = np.random.default_rng(0)
    marked = random.random((4, *shape)) < 0.04
    marked[:, 0, -1] = True
    rows, columns = np.indices(shape)
    expected = [np.min([cost(rows - i, columns - j) for i, j in np.argwhere(one)], axis=0) for one in marked]
    np.testing.assert_allclose(chamfer_distance(marked), expected, atol=1e-3)


def test_nothing_marked_is_far():
    assert (chamfer_distance(np.zeros((1, 5, 5), bool)) > 1e6).all()


def test_weak_edges_count_only_if_they_lead_to_a_strong_one():
    """The gradient of a step of height h has the size 4 h: between the thresholds for 20, above both for 60."""
    image = np.zeros((1, 14, 10), np.uint8)
    image[0, :, 5:] = 20
    assert not canny_edges(image, 50, 150).any()
    image[0, :2, 5:] = 60
    assert canny_edges(image, 50, 150)[0, 5:, 4].all()


def test_turning_by_90_degrees_turns_the_edges():
    image = np.zeros((1, 16, 16), np.uint8)
    image[0, 4:, 6:] = 200
    edges, transposed = (canny_edges(one, 50, 150)[0] for one in (image, np.swapaxes(image, 1, 2)))
    np.testing.assert_array_equal(edges.T, transposed)
