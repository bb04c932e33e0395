"""Draws against SplitMix64 step by step, SciPy's tests of uniformity, and their independence of the batch."""

import zlib

import numpy as np
import pytest
import torch
from scipy import stats

from slimbayes.shifts import CONSTANTS, Shift
from slimbayes.shifts._draws import Draws
from slimbayes.shifts.shift import stretch

MASK = 2**64 - 1


def splitmix(state):
    """Return the outputs of SplitMix64, in plain whole numbers."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        yield finaliser(state)


def finaliser(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


@pytest.mark.parametrize(("seed", "number"), [(0, 0), (3, 12), (-1, 2**40)])
def test_draws_are_those_of_splitmix(seed, number):
    key = finaliser(finaliser(seed & MASK) + zlib.crc32(b"noise") & MASK)
    source = splitmix(finaliser((key + number * 0x9E3779B97F4A7C15) & MASK))
    expected = [((next(source) >> 11) + 0.5) * 2.0**-53 for _ in range(6)]
    drawn = Draws("noise", seed, torch.tensor([number])).uniform(2, 3)
    assert drawn.flatten().tolist() == expected
    assert drawn.shape == (1, 2, 3)


def test_draws_are_uniform_and_unrelated():
    draws = Draws("noise", 0, torch.arange(2000)).uniform(10).numpy()
    assert stats.kstest(draws.ravel(), "uniform").pvalue > 0.001
    others = {
        "the next example": np.roll(draws, 1, 0),
        "the next position": np.roll(draws, 1, 1),
        "the next seed": Draws("noise", 1, torch.arange(2000)).uniform(10).numpy(),
        "another purpose": Draws("gap", 0, torch.arange(2000)).uniform(10).numpy(),
    }
    for name, other in others.items():  # 4 standard errors of a correlation of 20,000 pairs
        assert abs(np.corrcoef(draws.ravel(), other.ravel())[0, 1]) < 4 / np.sqrt(20_000), name
    assert stats.kstest(Draws("noise", 0, torch.arange(2000)).normal(10).numpy().ravel(), "norm").pvalue > 0.001


def test_draws_below_a_bound_are_all_whole_numbers_below_it():
    drawn = Draws("noise", 0, torch.arange(3000)).below(5, 2)
    assert stats.chisquare(drawn.flatten().bincount(minlength=5).numpy()).pvalue > 0.001


def test_common_draws_are_shared():
    one, other = (Draws("drift", 4, torch.tensor(rows)).common().normal(3) for rows in ([1, 2], [9]))
    assert one.shape == (1, 3)
    assert torch.equal(one, other)


@pytest.mark.parametrize(("count", "share", "length"), [(48, 0.1, 5), (48, 0.5, 24), (3, 0.1, 0), (1, 0.5, 1)])
def test_stretches_lie_inside_and_begin_everywhere(count, share, length):
    start, end = stretch(count, share, Draws("gap", 0, torch.arange(4000)))
    assert (end - start == length).all()
    assert set(start.tolist()) == set(range(count - length + 1))


@pytest.mark.parametrize("severity", [0, 6, 2.5, "1"])
def test_severity_is_1_to_5(severity):
    with pytest.raises(ValueError, match="`severity` to be a whole number from 1 to 5, but got"):
        Shift("noise", lambda inputs, size, draws: inputs)((torch.zeros(1, 1),), severity)


def test_constants_rise():
    for constants in CONSTANTS.values():
        assert len(constants) == 5
        assert all(np.diff(constants) > 0)
