"""Noise for many rows from few draws: rows share a draw's magnitudes and have signs of their own."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from slimbayes.families import Normal
from slimbayes.layers.own_gradients import plain_operations_wanted
from slimbayes.native import kernel
from slimbayes.sampling import Sampling

__all__ = [
    "Flipped",
    "Side",
    "flip",
    "normal_for_rows",
    "parts_of",
    "random_signs",
    "rows_of_a_draw",
    "sharing",
    "side_of",
    "sign_bytes",
]

#: At most so many rows share a draw, where their number allows it.
ROWS_OF_A_DRAW = 32
#: Noise of fewer elements is drawn for each row: it is cheap.
LEAST_TO_FLIP = 2**15


@dataclass(frozen=True)
class Flipped:
    r"""Values of a symmetric law, :math:`v_{jnc} = loc_{kc} + b_{nc}\, d_{jc}` with independent random signs b.

    Row n of draw j belongs to member k, and :math:`d_j = scale_k \circ \epsilon_j`. As the noise is symmetric,
    :math:`b_{nc} \epsilon_{jc}` has the law of :math:`\epsilon_{jc}`, and its channels are independent: every row's
    values have exactly the law that they would have with noise of their own. The values of two rows are uncorrelated.
    Those of one draw share the magnitudes of their noise; any two of different draws are independent, although all
    draws use the same signs, because each draw has a random sign already. (Flipout does this for weights.)

    Attributes:
        loc: ``(members, channels)``.
        deviation: d, ``(draws, channels)``, the draws of a member together.
        signs: b, ``(rows of a draw, channels)``, in ``int8``.

    Example:
        >>> flipped = flip(torch.zeros(2, 3), torch.tensor([[1.0, 2, 3], [4, 5, 6]]), rows=4)
        >>> flipped.values().abs()
        tensor([[1., 2., 3.],
                [1., 2., 3.],
                [4., 5., 6.],
                [4., 5., 6.]])
    """

    loc: Tensor
    deviation: Tensor
    signs: Tensor

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.deviation.shape[0] * self.signs.shape[0]

    def values(self, out: Tensor | None = None) -> Tensor:
        """Return the values, ``(rows, channels)``.

        Args:
            out: Memory for them.
        """
        members, channels = self.loc.shape
        each = len(self.deviation) // members
        loc, deviation = self.loc.view(members, 1, 1, channels), self.deviation.view(members, each, 1, channels)
        signs = self.signs.to(loc.dtype)
        if out is None:
            return torch.addcmul(loc, deviation, signs).view(-1, channels)
        torch.addcmul(loc, deviation, signs, out=out.view(members, each, *signs.shape))
        return out

    def gradients(self, slopes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of loc and of the deviation.

        Args:
            slopes: Those of the values, ``(rows, channels)``.
        """
        of_loc = slopes.view(self.loc.shape[0], -1, slopes.shape[1]).sum(1)
        return of_loc, (slopes.view(-1, *self.signs.shape) * self.signs).sum(1)


#: What one side of a layer is scaled by: values ``(groups, channels)``, those of each row, or nothing.
Side = Tensor | Flipped | None
#: A side as arguments of an operation that autograd knows.
Parts = tuple[Tensor | None, Tensor | None, Tensor | None]


def parts_of(side: Side) -> Parts:
    """Take a side apart; ``side_of`` puts it together again."""
    return (side.loc, side.deviation, side.signs) if isinstance(side, Flipped) else (side, None, None)


def side_of(first: Tensor | None, deviation: Tensor | None, signs: Tensor | None) -> Side:
    """Put together what ``parts_of`` has taken apart."""
    return first if first is None or deviation is None or signs is None else Flipped(first, deviation, signs)


def flip(loc: Tensor, deviation: Tensor, rows: int, generator: Generator | None = None) -> Flipped:
    """Draw signs for ``rows`` rows, see ``Flipped``."""
    return Flipped(loc, deviation, sign_bytes((rows // deviation.shape[0], loc.shape[1]), generator))


def random_signs(shape: tuple[int, ...], like: Tensor, generator: Generator | None = None) -> Tensor:
    """Return +1 and -1 with equal probability, in the dtype and on the device of ``like``.

    Example:
        >>> sorted(set(random_signs((100,), torch.ones(1)).tolist()))
        [-1.0, 1.0]
    """
    dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
    if type(like) in (Tensor, nn.Parameter) and like.device.type == "cpu" and not plain_operations_wanted():
        return sign_bytes(shape, generator).to(dtype)
    options: dict[str, Any] = {} if generator is None else {"generator": generator}
    return torch.randint(2, shape, device=like.device, dtype=dtype, **options).mul_(2).sub_(1)


def sign_bytes(shape: tuple[int, ...], generator: Generator | None = None) -> Tensor:
    """Return +1 and -1 with equal probability as ``int8`` on the CPU: 64 of a random number.

    Example:
        >>> sign_bytes((2, 3)).abs()
        tensor([[1, 1, 1],
                [1, 1, 1]], dtype=torch.int8)
    """
    size = math.prod(shape)
    words = torch.empty(-(-size // 64), dtype=torch.int64, device="cpu").random_(-(2**63), None, generator=generator)
    if (run := kernel("signs", torch.int8)) is not None and type(words) is Tensor:
        signs = torch.empty(shape, dtype=torch.int8, device="cpu")
        run(words.data_ptr(), signs.data_ptr(), size)
        return signs
    places = torch.arange(8, dtype=torch.uint8, device="cpu")
    bits = words.view(torch.uint8).unsqueeze(1).bitwise_right_shift(places).bitwise_and_(1)
    return bits.flatten()[:size].view(shape).to(torch.int8).mul_(2).sub_(1)


def normal_for_rows(rows: int, channels: int, like: Tensor, sampling: Sampling) -> Tensor:
    """Draw standard normal numbers for each row, ``(rows, channels)``; a few rows may share magnitudes.

    Args:
        rows: Of all samples.
        channels: Numbers for a row.
        like: Gives the type and device.
        sampling: The pass under way.
    """
    share = sharing(rows, channels, 1, like, sampling)
    if share == 1:
        return Normal().noise((rows, channels), like, sampling.generator)
    noise = Normal().noise((rows // share, 1, channels), like, sampling.generator)
    return (noise * random_signs((share, channels), like, sampling.generator)).flatten(0, 1)


def sharing(rows: int, channels: int, members: int, like: Tensor, sampling: Sampling) -> int:
    """Return how many rows are to share a draw: one where noise for each is cheap, or is asked for.

    Args:
        rows: Of all members and samples.
        channels: Numbers for a row.
        members: Mixture components.
        like: Gives the type and device.
        sampling: The pass under way.
    """
    # Compiled code would be bound to the numbers that it has compared.
    if plain_operations_wanted() or sampling.noise != "example" or like.device.type != "cpu":
        return 1
    if rows * channels < LEAST_TO_FLIP or like.dtype not in (torch.float32, torch.float64):
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
