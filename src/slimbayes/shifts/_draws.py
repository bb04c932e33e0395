"""Random numbers that belong to an example, not to its batch: functions of seed, purpose, example and position."""

import zlib
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_STEP = 0x9E3779B97F4A7C15


class Draws(NamedTuple):
    """Draws for some examples.

    Number k of an example is that of SplitMix64 (Steele, Lea & Flood 2014, Figure 16) after k steps, which starts where
    the seed, the purpose and the example's number lead. So an example's draws do not depend on the others of its batch,
    and those of a longer example begin with those of a shorter one.

    Attributes:
        purpose: A name; draws for different purposes are unrelated.
        seed: Of all draws.
        numbers: ``(n,)``, int64: the numbers of the examples.

    Example:
        >>> both, second = (Draws("noise", 0, torch.tensor(rows)).uniform(3) for rows in ([4, 7], [7]))
        >>> torch.equal(both[1], second[0])
        True
    """

    purpose: str
    seed: int
    numbers: Tensor

    def uniform(self, *shape: int) -> Tensor:
        """Return ``(n, *shape)`` draws above 0 and below 1, float64."""
        key = _mixed(np.array([self.seed % 2**64], np.uint64)) + np.uint64(zlib.crc32(self.purpose.encode()))
        numbers = self.numbers.cpu().numpy().astype(np.uint64)
        start = _mixed(_mixed(key) + numbers * np.uint64(_STEP))[:, None]
        bits = _mixed(start + np.arange(1, prod(shape) + 1, dtype=np.uint64) * np.uint64(_STEP))
        draws = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        return torch.from_numpy(draws.reshape(len(numbers), *shape))

    def normal(self, *shape: int) -> Tensor:
        """Return ``(n, *shape)`` standard normal draws, float32."""
        return torch.special.ndtri(self.uniform(*shape)).float()

    def below(self, bounds: int | Tensor, *shape: int) -> Tensor:
        """Return ``(n, *shape)`` whole numbers from 0 to bound - 1, int64."""
        return (self.uniform(*shape) * bounds).long()

    def common(self) -> "Draws":
        """Return draws that all examples share: ``n`` is 1."""
        return self._replace(numbers=torch.zeros(1, dtype=torch.int64))


def _mixed(state: NDArray[Any]) -> NDArray[Any]:
    """Return SplitMix64's output for some states; whole numbers modulo 2^64."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
