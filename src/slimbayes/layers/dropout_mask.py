"""Element-wise dropout whose masks can be drawn before the input's shape is known, and be drawn again."""

import math
from typing import Any

import torch
from torch import Generator, Tensor, nn

from slimbayes.layers.base import Stochastic
from slimbayes.sampling import Sampling

__all__ = ["ElementMask", "hashed", "kept", "refuse_to_fold"]


def kept(shape: tuple[int, ...], rate: float, device: torch.device, generator: Generator | None) -> Tensor:
    """Draw what is not dropped: true with probability 1 - rate."""
    # Even a None would choose the overload that cannot take the symbolic shapes of torch.compile.
    source: dict[str, Any] = {} if generator is None else {"generator": generator}
    return torch.rand(shape, device=device, **source) >= rate


def hashed(seed: Tensor, position: Tensor) -> Tensor:
    """Return the 64 random bits, as signed integers, that a seed has at a position.

    The generator SplitMix64 (Steele, Lea and Flood 2014), which counts in steps of an odd constant and mixes
    the bits of the count, so that any of its numbers can be had without those before.

    Args:
        seed: int64.
        position: int64, from 0; broadcast with ``seed``.

    Example:
        >>> hashed(torch.tensor(1234567), torch.arange(2))  # the first two numbers of SplitMix64(1234567)
        tensor([6457827717110365317, 3203168211198807973])
    """
    z = seed + (position + 1) * _signed(0x9E3779B97F4A7C15)
    z = (z ^ _shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ _shifted(z, 31)


def _signed(bits: int) -> int:
    return bits - 2**64 if bits >= 2**63 else bits


def _shifted(z: Tensor, by: int) -> Tensor:
    return (z >> by) & (2 ** (64 - by) - 1)  # torch's shift repeats the sign


class ElementMask(Stochastic, nn.Module):
    """Independent Bernoulli(1 - rate) / (1 - rate) for each value of a tensor.

    With noise per example every row has its own mask. What a draw holds is a seed: all examples then have the one
    mask that the seed gives, whatever shape the input turns out to have.

    Args:
        rate: Probability of a zero.
        channels: Length of its location, which is all ones.
        device: Where to draw.
        dtype: Type of the location.

    Example:
        >>> mask = ElementMask(0.5)
        >>> sorted(mask.masked(torch.ones(100, 3), 0).unique().tolist())
        [0.0, 2.0]
    """

    loc: Tensor
    rho = None  # no scale to train

    def __init__(self, rate: float, channels: int = 1, device: Any = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.sampling = Sampling()
        self.rate = rate
        self.register_buffer("loc", torch.ones(channels, device=device, dtype=dtype), persistent=False)

    def masked(self, x: Tensor, axis: int, shape: tuple[int, ...] | None = None, anew: bool = False) -> Tensor:
        """Return ``x`` with some of its values dropped and the others scaled up.

        Args:
            x: Rows on ``axis``.
            axis: Axis of the rows.
            shape: The mask's shape, ones where it is to be shared; None for that of ``x``.
            anew: Each call of a pass has a mask of its own. False: a layer that is called twice keeps its mask.
        """
        sampling, shape = self.sampling, tuple(x.shape) if shape is None else shape
        if sampling.held is not None and self.name in sampling.held:
            seeds = sampling.held[self.name]
            keep = self._kept_by(self._following(seeds) if anew else seeds, shape, axis)
        elif sampling.samples == 0:
            return x
        elif sampling.noise == "shared":
            keep = self._kept_by(self.hold(1, sampling.samples, self.source(self.name)), shape, axis)
        else:
            keep = self._kept_by_row(shape, axis, anew)
        return x * keep.to(x.dtype) * (1 / (1 - self.rate))

    def _following(self, seeds: Tensor) -> Tensor:
        """Return the seeds of this call: those held in a pass's first call, hashes of the last ones in a later one."""
        drawn = self.sampling.drawn
        if drawn is None:
            return seeds
        # The number before the first is in no mask.
        drawn[self.name] = hashed(drawn[self.name], seeds.new_tensor(-1)) if self.name in drawn else seeds
        return drawn[self.name]

    def _kept_by_row(self, shape: tuple[int, ...], axis: int, anew: bool) -> Tensor:
        drawn = None if anew else self.sampling.drawn
        if drawn is not None and self.name in drawn and drawn[self.name].shape == shape:
            return drawn[self.name]
        rest = (*shape[:axis], *shape[axis + 1 :])

        def draw(rows: tuple[int, int], generator: Generator | None) -> Tensor:
            return kept((*rows, *rest), self.rate, self.loc.device, generator)

        keep = self.for_rows(self.name, shape[axis], draw).movedim(0, axis)
        if drawn is not None:
            drawn[self.name] = keep
        return keep

    def _kept_by(self, seeds: Tensor, shape: tuple[int, ...], axis: int) -> Tensor:
        """Return the mask of each draw, repeated for its examples."""
        rows, rest = shape[axis], (*shape[:axis], *shape[axis + 1 :])
        made = rows if self.sampling.rows is None else self.sampling.rows
        # What the network merged into the batch on the right of the rows is part of an example.
        example = (rows // made, *rest)
        positions = torch.arange(math.prod(example), device=seeds.device)
        keep = hashed(seeds.unsqueeze(1), positions) >= int(self.rate * 2.0**64) - 2**63
        keep = keep.view(-1, 1, *example).expand(-1, made // seeds.shape[0], *[-1] * len(example))
        return keep.reshape(rows, *rest).movedim(0, axis)

    def hold(self, members: int, samples: int, generator: Generator | None) -> Tensor:
        """Draw one seed per member and sample: ``(members * samples,)`` of int64."""
        return torch.randint(2**62, (members * max(samples, 1),), device=self.loc.device, generator=generator)

    def at_location(self, member: int) -> Tensor:
        """Return ones, which leave everything as it is: ``(channels,)``."""
        return self.loc

    def kl(self) -> Tensor:
        """Return zero: nothing is trained."""
        return torch.zeros((), device=self.loc.device)

    @property
    def scale(self) -> Tensor:
        """sqrt(rate / (1 - rate))."""
        return self.loc * math.sqrt(self.rate / (1 - self.rate))

    def log_scale_gradients(self) -> list[Tensor]:
        """Return none."""
        return []

    def extra_repr(self) -> str:
        """Show the rate."""
        return f"rate={self.rate:g}"


def refuse_to_fold(value: Tensor) -> None:
    """Raise if a value that is to be folded into weights is the seed of a mask."""
    if not value.is_floating_point():
        raise ValueError(
            "Dropout that draws a mask for each value, or inside the network's own modules, cannot be folded into "
            "weights. For members of one draw convert with sb.mc_dropout(net, rate, place='before', unit='filter'); "
            "model.member(k) alone gives the network without dropout."
        )
