"""The density of a predicted real value, as the points of a drawing."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

#: Size of the drawing, the height of its baseline, and the room at its sides.
WIDTH, HEIGHT, BASE, SIDE = 420, 190, 150, 14
#: Points of a curve.
POINTS = 161


class Density(NamedTuple):
    """A drawing in a box of ``WIDTH`` by ``HEIGHT``.

    Attributes:
        area: Points of the mixture's curve, closed along the baseline.
        members: Points of each member's curve, on the same scale; the members' together make the mixture.
        means: Where the members' means are.
        interval: Where the ends of the interval are.
        ticks: Positions on the axis and their numbers.
    """

    area: str
    members: list[str]
    means: list[float]
    interval: tuple[float, float]
    ticks: list[tuple[float, str]]


def density_of(means: Tensor, noises: Tensor, members: int, interval: tuple[float, float]) -> Density:
    """Return the drawing of a mixture of normal distributions.

    Args:
        means: Of each draw, ``(draws,)``, member-major.
        noises: Their standard deviations.
        members: Mixture components.
        interval: Its ends.
    """
    means, noises = means.double(), noises.double()
    # A value without noise would be an infinite peak.
    least = 0.01 * float(means.max() - means.min()) or 0.01 * float(means.abs().max()) or 1.0
    noises = torch.where(noises > 0, noises, least)
    low, high = float((means - 3.5 * noises).min()), float((means + 3.5 * noises).max())
    grid = torch.linspace(low, high, POINTS, dtype=torch.float64)
    each = torch.exp(-0.5 * ((grid - means[:, None]) / noises[:, None]).square()) / noises[:, None]
    own = each.unflatten(0, (members, -1)).mean(1)
    top = float(own.max())

    def x(value: float) -> float:
        return round(SIDE + (WIDTH - 2 * SIDE) * (value - low) / (high - low), 2)

    def points(curve: Tensor) -> str:
        heights = (BASE - (BASE - 12) * curve / top).tolist()
        return " ".join(f"{x(at):.1f},{y:.1f}" for at, y in zip(grid.tolist(), heights, strict=True))

    return Density(
        f"{x(low)},{BASE} {points(own.mean(0))} {x(high)},{BASE}",
        [points(curve) for curve in own] if members > 1 else [],
        [x(float(mean)) for mean in means.unflatten(0, (members, -1)).mean(1)],
        (x(max(low, interval[0])), x(min(high, interval[1]))),
        [(x(value), f"{value:.6g}") for value in round_ticks(low, high)],
    )


def round_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers between two others.

    Example:
        >>> round_ticks(0.13, 0.97)
        [0.2, 0.4, 0.6, 0.8]
    """
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) + 0.0 for number in range(first, math.floor(high / step + 1e-9) + 1)]
