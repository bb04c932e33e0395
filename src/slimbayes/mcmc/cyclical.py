"""The cyclical step sizes of Zhang et al. 2020: each cycle explores with large steps, then samples with small ones."""

import math

from slimbayes._checks import check_count, check_number

__all__ = ["CyclicalRate", "cyclical_rate"]


class CyclicalRate:
    r"""A multiple of the step size that falls along a cosine, and starts again in each of M cycles.

    .. math::
        r(k) &= \frac{\mathrm{mod}(k - 1, \lceil K / M \rceil)}{\lceil K / M \rceil} \\
        \alpha_k &= \frac{\alpha_0}{2} \left[ \cos(\pi \, r(k)) + 1 \right]

    (Zhang et al. 2020, Eq. 1, with :math:`\alpha_0 = 1`), where k = ``step + 1`` because steps count from 0 here.
    While :math:`r(k) < \beta` the chain explores without noise; from there on it samples (their Algorithm 1).

    Give it to ``LambdaLR``, and move the noise along: ``sampler.switch_noise(rate.sampling(step))``.

    Args:
        steps: Optimiser steps K of the whole run.
        cycles: Number M of cycles. Where it does not divide ``steps`` the last cycle is the shorter one.
        exploration: Share :math:`\beta` of each cycle that explores; 0 to sample throughout.

    Example:
        >>> rate = CyclicalRate(steps=8, cycles=2, exploration=0.5)
        >>> [round(rate(step), 3) for step in range(5)]
        [1.0, 0.854, 0.5, 0.146, 1.0]
        >>> [rate.sampling(step) for step in range(5)]
        [False, False, True, True, False]
        >>> rate.cycle(4), rate.last_of_cycle(3), rate.last_of_cycle(4)
        (1, True, False)
    """

    def __init__(self, steps: int, cycles: int = 4, exploration: float = 0.8) -> None:
        check_count("steps", steps, 1, "Give optimiser steps, not epochs: epochs * len(loader).")
        check_count("cycles", cycles, 1, "It is the number of warm restarts, such as 4.")
        if cycles > steps:
            raise ValueError(
                f"Expected argument `cycles` to be at most `steps` = {steps}, but got {cycles}. Give optimiser steps, "
                "not epochs, or fewer cycles."
            )
        remedy = "It is the share of each cycle without noise and samples, such as 0.8."
        check_number("exploration", exploration, 0.0, 1.0, remedy, or_low=True)
        self.steps, self.cycles, self.exploration = steps, cycles, exploration
        self.length = math.ceil(steps / cycles)

    def __call__(self, step: int) -> float:
        """Return the multiple of the step size at a step, from 0."""
        return 0.5 * (math.cos(math.pi * self._share(step)) + 1)

    def _share(self, step: int) -> float:
        return step % self.length / self.length

    def sampling(self, step: int) -> bool:
        """Whether the step belongs to a sampling stage: it has noise, and the draw after it may be kept."""
        return self._share(step) >= self.exploration

    def cycle(self, step: int) -> int:
        """Return the number of the step's cycle, from 0."""
        return step // self.length

    def last_of_cycle(self, step: int) -> bool:
        """Whether a cycle ends with this step, or the run does."""
        return (step + 1) % self.length == 0 or step + 1 == self.steps

    def __repr__(self) -> str:
        return f"CyclicalRate(steps={self.steps}, cycles={self.cycles}, exploration={self.exploration})"


def cyclical_rate(step: int, steps: int, cycles: int = 4) -> float:
    """Return the multiple of the step size at a step, from 0; see ``CyclicalRate``.

    Example:
        >>> cyclical_rate(0, steps=100, cycles=2), round(cyclical_rate(49, steps=100, cycles=2), 4)
        (1.0, 0.001)
    """
    return CyclicalRate(steps, cycles)(step)
