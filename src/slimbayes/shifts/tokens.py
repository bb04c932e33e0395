"""Shifts of texts: tokens as ``Text`` makes them, with padding before the words."""

from dataclasses import dataclass

import torch
from torch import Tensor

from slimbayes.data.text import OFFSET, RARE, START
from slimbayes.shifts._draws import Draws
from slimbayes.shifts.shift import Inputs, Shift, stretch

__all__ = ["Tokens", "is_word"]


@dataclass(frozen=True)
class Tokens:
    """One input, ``(n, length)``, int64: padding, the start of a text, its words.

    Attributes:
        vocabulary: Number of different tokens.

    Example:
        >>> Tokens(9).shifts["gap"]((torch.tensor([[0, 1, 5, 6, 7, 8]]),), severity=5)
        (tensor([[0, 0, 0, 1, 5, 6]]),)
    """

    vocabulary: int

    @property
    def features(self) -> None:
        """Words have no columns."""
        return

    @property
    def shifts(self) -> dict[str, Shift]:
        """Unknown words, lost words, a lost stretch of words."""
        found = {"unknown": _unknown, "dropped": _dropped, "gap": _with_gap}
        return {name: Shift(name, apply) for name, apply in found.items()}

    def noise(self, inputs: Inputs, draws: Draws) -> Inputs:
        """Return texts of the same lengths, each word any of the vocabulary."""
        (tokens,) = inputs
        first = OFFSET + 1
        return (torch.where(is_word(tokens), first + draws.below(self.vocabulary - first, tokens.shape[1]), tokens),)


def is_word(tokens: Tensor) -> Tensor:
    """Return which tokens are words, known or not: neither padding nor the start of a text."""
    return tokens > START


def _unknown(inputs: Inputs, share: float, draws: Draws) -> Inputs:
    (tokens,) = inputs
    return (torch.where(is_word(tokens) & (draws.uniform(tokens.shape[1]) < share), RARE, tokens),)


def _dropped(inputs: Inputs, share: float, draws: Draws) -> Inputs:
    (tokens,) = inputs
    return _without(tokens, draws.uniform(tokens.shape[1]) < share)


def _with_gap(inputs: Inputs, share: float, draws: Draws) -> Inputs:
    (tokens,) = inputs
    position = is_word(tokens).cumsum(1) - 1
    start, end = stretch(position[:, -1] + 1, share, draws)
    return _without(tokens, (position >= start.unsqueeze(1)) & (position < end.unsqueeze(1)))


def _without(tokens: Tensor, lost: Tensor) -> Inputs:
    """Return the other words in their order, with more padding before them."""
    kept = torch.where(lost & is_word(tokens), 0, tokens)
    return (kept.gather(1, (kept > 0).long().argsort(dim=1, stable=True)),)
