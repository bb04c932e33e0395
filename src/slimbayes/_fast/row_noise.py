"""Noise for many rows from few random numbers: rows share a draw's magnitudes and have signs of their own.

Noise for each row of a dense layer takes a random number for each activation, and drawing one takes longer than a
multiplication.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from slimbayes._fast.guards import followed
from slimbayes.sampling import BLOCK, Blocks

#: At most so many rows share a draw, where their number allows it.
ROWS_OF_A_DRAW = 32
#: Noise of fewer elements is drawn for each row: it is cheap.
LEAST_TO_SHARE = 2**15
#: The same for a block of examples of a prediction: one example alone draws all of its block.
LEAST_OF_A_BLOCK = 2**12


@dataclass(frozen=True)
class SignedNoise:
    r"""Values of a symmetric distribution, :math:`v_{nc} = loc_{kc} + b_{nc}\, d_{jc}` with random signs b.

    Row n has draw j of member k, and :math:`d_j = scale_k \circ \epsilon_j`. As the noise is symmetric,
    :math:`b_{nc} \epsilon_{jc}` has the distribution of :math:`\epsilon_{jc}`, and its channels are independent: every
    row's values have exactly the distribution that they would have with noise of their own. The values of two rows are
    uncorrelated, in one pass and over many. Those of one draw share the magnitudes of their noise; any two of different
    draws are independent. (Flipout does this for weights.)

    Attributes:
        loc: ``(members, channels)``.
        deviation: d, ``(draws, channels)``, the draws of a member together.
        bits: Whether the signs b are plus, ``(rows, channels / 8)`` in ``uint8``, see ``random_bits``.

    Example:
        >>> noise = SignedNoise(torch.zeros(2, 3), torch.tensor([[1.0, 2, 3], [4, 5, 6]]), random_bits((4, 3)))
        >>> noise.values().abs()
        tensor([[1., 2., 3.],
                [1., 2., 3.],
                [4., 5., 6.],
                [4., 5., 6.]])
    """

    loc: Tensor
    deviation: Tensor
    bits: Tensor

    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return loc, deviation and bits."""
        return self.loc, self.deviation, self.bits

    def values(self) -> Tensor:
        """Return the values of each row, ``(rows, channels)``."""
        members, channels = self.loc.shape
        draws = len(self.deviation)
        signs = signs_of(self.bits, channels).to(self.loc.dtype).view(members, draws // members, -1, channels)
        loc, deviation = self.loc.view(members, 1, 1, channels), self.deviation.view(members, -1, 1, channels)
        return torch.addcmul(loc, deviation, signs).view(-1, channels)


def signed_noise(factor: Any, rows: int, sampling: Any) -> SignedNoise | Tensor | None:
    """Draw a rank-1 factor for each row, or return None where it is to be drawn plainly.

    Args:
        factor: A ``layers.factor.Factor``.
        rows: Of all members and samples.
        sampling: The pass under way.
    """
    loc, family, members = factor.loc, factor.family, factor.members
    if factor.clip is not None or loc.dim() != 2 or not family.shares_magnitudes:
        return None
    found = _magnitudes_and_bits(factor, rows, members, loc, family, sampling)
    if found is None:
        return None
    noise, bits = found
    deviation = (factor.scale.unsqueeze(1) * noise).flatten(0, 1)
    if _even(sampling):
        return SignedNoise(loc, deviation, bits)
    signs = signs_of(bits, loc.shape[1]).to(loc.dtype)
    values = loc.unsqueeze(1) + _for_rows(deviation, sampling).mul(signs).view(members, -1, loc.shape[1])
    return values.flatten(0, 1)


def _magnitudes_and_bits(
    factor: Any, rows: int, members: int, like: Tensor, family: Any, sampling: Any
) -> tuple[Tensor, Tensor] | None:
    """Return noise of each draw, ``(members, draws of a member, channels)``, and the bits of each row's signs."""
    channels, generator = like.shape[1], sampling.generator
    share = rows_that_share(rows, channels, members, like, sampling)
    if share == 1:
        return None
    if not isinstance(generator, Blocks):
        source = factor.source(factor.name)
        noise = family.noise((members, rows // (members * share), channels), like, source)
        return noise, random_bits((rows, channels), source)

    def draw(source: Generator) -> tuple[Tensor, Tensor]:
        return family.noise((members, 1, channels), like, source), random_bits((members, BLOCK, channels), source)

    blocks = generator.in_blocks(factor.name, draw)
    noise = torch.stack([torch.cat([noise for noise, _ in own], 1) for own in blocks], 1)
    return noise.flatten(1, 2), generator.rows_of([[bits for _, bits in own] for own in blocks])


def _even(sampling: Any) -> bool:
    """Tell whether all draws have as many rows."""
    if not isinstance(sampling.generator, Blocks):
        return True
    first, count = sampling.generator.part.example % BLOCK, sampling.generator.part.examples
    return first + count <= BLOCK or (first == 0 and count % BLOCK == 0)


def _for_rows(of_draws: Tensor, sampling: Any) -> Tensor:
    """Repeat what blocks have, ``(draws, channels)``, for those of their rows that are of the pass."""
    part = sampling.generator.part
    first = part.example // BLOCK
    block = torch.arange(part.example, part.example + part.examples) // BLOCK - first
    grouped = of_draws.unflatten(0, (-1, int(block[-1]) + 1))
    return grouped.index_select(1, block).flatten(0, 1)


#: The eight signs that each byte stands for: bit c is 1 where channel c has a plus.
_SIGNS_OF_BYTE = (((torch.arange(256).unsqueeze(1) >> torch.arange(8)) & 1) * 2 - 1).to(torch.int8)


def random_bits(shape: tuple[int, ...], generator: Generator | None = None) -> Tensor:
    """Return a random bit for each channel of rows ``(*, channels)``: ``(*, channels / 8)`` of ``uint8``, on the CPU.

    Example:
        >>> random_bits((2, 3, 9)).shape
        torch.Size([2, 3, 2])
    """
    shape = (*shape[:-1], -(-shape[-1] // 8))
    size = math.prod(shape)
    words = torch.empty(-(-size // 8), dtype=torch.int64, device="cpu").random_(-(2**63), None, generator=generator)
    return words.view(torch.uint8)[:size].view(shape)


def signs_of(bits: Tensor, channels: int) -> Tensor:
    """Return the signs that bits stand for, +1 and -1 in ``int8``, ``(*, channels)``.

    Example:
        >>> signs_of(torch.tensor([[0b101]], dtype=torch.uint8), 3)
        tensor([[ 1, -1,  1]], dtype=torch.int8)
    """
    table = _SIGNS_OF_BYTE.view(torch.int64).flatten()  # eight signs at once
    signs = table.index_select(0, bits.flatten().int()).view(torch.int8)
    return signs.view(*bits.shape[:-1], -1)[..., :channels]


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
    if like.dtype not in (torch.float32, torch.float64):
        return 1
    if isinstance(sampling.generator, Blocks):  # whatever the pass has, the block decides
        return BLOCK if BLOCK * members * channels >= LEAST_OF_A_BLOCK else 1
    if rows * channels < LEAST_TO_SHARE:
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
