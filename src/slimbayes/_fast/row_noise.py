"""Noise for many rows from few random numbers: rows share a draw's magnitudes and have signs of their own.

Random numbers for each row of a dense layer are as many as its activations, and each takes longer than a product.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from slimbayes._fast.guards import followed
from slimbayes.families import Normal

#: At most so many rows share a draw, where their number allows it.
ROWS_OF_A_DRAW = 32
#: Noise of fewer elements is drawn for each row: it is cheap.
LEAST_TO_SHARE = 2**15


@dataclass(frozen=True)
class SignedNoise:
    r"""Values of a symmetric distribution, :math:`v_{jnc} = loc_{kc} + b_{nc}\, d_{jc}` with random signs b.

    Row n of draw j belongs to member k, and :math:`d_j = scale_k \circ \epsilon_j`. As the noise is symmetric,
    :math:`b_{nc} \epsilon_{jc}` has the distribution of :math:`\epsilon_{jc}`, and its channels are independent: every
    row's values have exactly the distribution that they would have with noise of their own. The values of two rows are
    uncorrelated. Those of one draw share the magnitudes of their noise; any two of different draws are independent,
    although all draws use the same signs, because each draw has a random sign already. (Flipout does this for weights.)

    Attributes:
        loc: ``(members, channels)``.
        deviation: d, ``(draws, channels)``, the draws of a member together.
        signs: b, ``(rows of a draw, channels)``, in ``int8``.

    Example:
        >>> signs = random_sign_bytes((2, 3))
        >>> SignedNoise(torch.zeros(2, 3), torch.tensor([[1.0, 2, 3], [4, 5, 6]]), signs).values().abs()
        tensor([[1., 2., 3.],
                [1., 2., 3.],
                [4., 5., 6.],
                [4., 5., 6.]])
    """

    loc: Tensor
    deviation: Tensor
    signs: Tensor

    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return loc, deviation and signs."""
        return self.loc, self.deviation, self.signs

    def values(self) -> Tensor:
        """Return the values of each row, ``(rows, channels)``."""
        members, channels = self.loc.shape
        loc, deviation = self.loc.view(members, 1, 1, channels), self.deviation.view(members, -1, 1, channels)
        return torch.addcmul(loc, deviation, self.signs.to(loc.dtype)).view(-1, channels)


def signed_noise(factor: Any, rows: int, sampling: Any) -> SignedNoise | None:
    """Draw a rank-1 factor for each row, or return None where it is to be drawn plainly.

    Args:
        factor: A ``layers.factor.Factor``.
        rows: Of all members and samples.
        sampling: The pass under way.
    """
    loc, family = factor.loc, factor.family
    if factor.clip is not None or loc.dim() != 2 or not family.symmetric:
        return None
    share = rows_that_share(rows, loc.shape[1], factor.members, loc, sampling)
    if share == 1:
        return None
    generator = sampling.generator
    noise = family.noise((factor.members, rows // (factor.members * share), loc.shape[1]), loc, generator)
    deviation = (factor.scale.unsqueeze(1) * noise).flatten(0, 1)
    return SignedNoise(loc, deviation, random_sign_bytes((share, loc.shape[1]), generator))


def noise_for_rows(rows: int, channels: int, like: Tensor, sampling: Any) -> Tensor | None:
    """Draw standard normal numbers for each row, ``(rows, channels)``, or return None, as above.

    Args:
        rows: Of all samples.
        channels: Numbers for a row.
        like: Gives the type and device.
        sampling: The pass under way.
    """
    share = rows_that_share(rows, channels, 1, like, sampling)
    if share == 1:
        return None
    noise = Normal().noise((rows // share, 1, channels), like, sampling.generator)
    return (noise * random_sign_bytes((share, channels), sampling.generator)).flatten(0, 1)


def random_sign_bytes(shape: tuple[int, ...], generator: Generator | None = None) -> Tensor:
    """Return +1 and -1 with equal probability as ``int8`` on the CPU: the bits of random numbers.

    Example:
        >>> random_sign_bytes((2, 3)).abs()
        tensor([[1, 1, 1],
                [1, 1, 1]], dtype=torch.int8)
    """
    size = math.prod(shape)
    words = torch.empty(-(-size // 64), dtype=torch.int64, device="cpu").random_(-(2**63), None, generator=generator)
    positions = torch.arange(8, dtype=torch.uint8, device="cpu")
    bits = words.view(torch.uint8).unsqueeze(1).bitwise_right_shift(positions).bitwise_and_(1)
    return bits.flatten()[:size].view(shape).to(torch.int8).mul_(2).sub_(1)


def rows_that_share(rows: int, channels: int, members: int, like: Tensor, sampling: Any) -> int:
    """Return how many rows are to share a draw: one where noise for each is cheap, or is asked for.

    Args:
        rows: Of all members and samples.
        channels: Numbers for a row.
        members: Mixture components.
        like: Gives the type and device.
        sampling: The pass under way.
    """
    # Compiled code would be bound to the numbers that it has compared.
    if followed() or sampling.noise != "example" or like.device.type != "cpu":
        return 1
    if rows * channels < LEAST_TO_SHARE or like.dtype not in (torch.float32, torch.float64):
        return 1
    return rows_of_a_draw(rows // (members * max(sampling.samples, 1)))


def rows_of_a_draw(rows: int) -> int:
    """Return how many of the ``rows`` rows of a member and sample share a draw: a divisor of their number.

    Example:
        >>> rows_of_a_draw(64), rows_of_a_draw(60), rows_of_a_draw(61), rows_of_a_draw(1)
        (32, 30, 61, 1)
    """
    few = next(count for count in range(min(ROWS_OF_A_DRAW, rows), 0, -1) if rows % count == 0)
    if few >= min(ROWS_OF_A_DRAW, rows) / 2:
        return few
    return next(count for count in range(ROWS_OF_A_DRAW, rows + 1) if rows % count == 0)
