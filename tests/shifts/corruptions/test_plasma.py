import numpy as np
import pytest

from slimbayes.shifts.corruptions.weather import plasma, plasma_side


def by_points(uniforms: list[float], side: int, decay: float) -> np.ndarray:
    """Diamond-square point by point."""
    heights, numbers = np.zeros((side, side)), iter(uniforms)

    def fill(row: int, column: int, neighbours: list[tuple[int, int]]) -> None:
        mean = np.mean([heights[(row + i) % side, (column + j) % side] for i, j in neighbours])
        heights[row, column] = mean + amplitude * (2 * next(numbers) - 1) * amplitude

    step, amplitude = side, 100.0
    while step >= 2:
        half = step // 2
        whole = range(0, side, step)
        plus = [(-half, 0), (half, 0), (0, -half), (0, half)]
        for shift_rows, shift_columns, neighbours in (
            (half, half, [(i, j) for i in (-half, half) for j in (-half, half)]),
            (0, half, plus),
            (half, 0, plus),
        ):
            for row in whole:
                for column in whole:
                    fill(row + shift_rows, column + shift_columns, neighbours)
        step, amplitude = half, amplitude / decay
    heights -= heights.min()
    return heights / heights.max()


def test_agrees_with_a_loop_over_points():
    uniforms = np.random.default_rng(0).random((3, 8 * 8 - 1))
    expected = [by_points(one.tolist(), 8, 1.75) for one in uniforms]
    np.testing.assert_allclose(plasma(uniforms, 1.75), expected, atol=1e-10)


@pytest.mark.parametrize(
    ("side", "decay", "mean", "spread", "spread_of_means"),
    [(32, 3, 0.5, 0.147, 0.095), (32, 1.75, 0.5, 0.171, 0.086), (256, 1.4, 0.51, 0.178, 0.068)],
)
def test_field_statistics(side, decay, mean, spread, spread_of_means):
    """Figures of the original program, with two or three digits; of 224 x 224 pixels where the side is 256."""
    count = 400 if side == 32 else 60
    fields = plasma(np.random.default_rng(1).random((count, side * side - 1)), decay)[:, :224, :224]
    means, spreads = fields.mean((1, 2)), fields.std((1, 2))
    assert abs(means.mean() - mean) < 4 * spread_of_means / count**0.5 + 0.005
    assert abs(spreads.mean() - spread) < 4 * spreads.std() / count**0.5 + 0.0005
    assert abs(means.std() / spread_of_means - 1) < 4 / (2 * count) ** 0.5 + 0.01


def test_covers_the_unit_interval():
    fields = plasma(np.random.default_rng(2).random((5, 16 * 16 - 1)), 2)
    assert (fields.min((1, 2)) == 0).all()
    assert (fields.max((1, 2)) == 1).all()


@pytest.mark.parametrize(("side", "expected"), [(1, 1), (8, 8), (28, 32), (33, 64), (96, 128), (256, 256)])
def test_side(side, expected):
    assert plasma_side(side) == expected
