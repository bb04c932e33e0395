"""Seeds: one number of the configuration leads to unrelated ones for every purpose, epoch, step and process."""

import random
from enum import IntEnum

import numpy as np
import torch


class Purpose(IntEnum):
    """What random numbers are for; no two purposes may share a seed."""

    NOISE = 1
    ORDER = 2
    AUGMENTATION = 3
    EVALUATION = 4
    MEMBER = 5
    CHAINS = 6
    FINISH = 7
    PREDICTIVE_NOISE = 8
    TUNING = 9


def mix(*numbers: int) -> int:
    """Return a seed below 2^63 that depends on every number and its position.

    Example:
        >>> mix(1, 2) != mix(2, 1)
        True
    """
    state = 0
    for number in numbers:
        # The finaliser of SplitMix64: neighbouring numbers lead to unrelated seeds.
        state = (state + number + 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
        state ^= state >> 31
    return state >> 1


def seed_everything(seed: int) -> None:
    """Seed Python's, NumPy's and torch's global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)
