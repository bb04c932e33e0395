"""Stored draws, dealt like cards: none comes twice before all have come once."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Generator, Tensor

from slimbayes.ensembles.kept import pick

__all__ = ["Deck"]


class Deck:
    """Deals places of stored draws, each member its own, without replacement for as long as it is open.

    A model draws sample by sample, and predicts in chunks of samples where memory is short. Open around all of it, the
    deck deals the same draws whatever the chunks. When all have been dealt, they are shuffled anew.

    Example:
        >>> import torch
        >>> deck, generator = Deck(), torch.Generator().manual_seed(0)
        >>> with deck.open():
        ...     [int(deck.deal(1, 3, generator)) for _ in range(3)]
        [2, 0, 1]
    """

    def __init__(self) -> None:
        self._opened = False
        self._order: Tensor | None = None
        self._next = 0

    @contextmanager
    def open(self) -> Iterator[None]:
        """Start with a new order, unless the deck is open already."""
        outermost, self._opened = not self._opened, True
        try:
            yield
        finally:
            if outermost:
                self._opened, self._order = False, None

    def deal(self, members: int, number: int, generator: Generator | None, device: Any = None) -> Tensor:
        """Return the next place, from 0 to ``number - 1``, for each member: ``(members,)``."""
        assert self._opened
        if self._order is None or self._next == number:
            self._order, self._next = pick(members, number, number, generator, device), 0
        self._next += 1
        return self._order[:, self._next - 1]
