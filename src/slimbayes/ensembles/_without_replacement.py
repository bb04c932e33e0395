"""Positions of stored draws, without replacement: none comes twice before all have come once."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Generator, Tensor


def without_replacement(
    members: int, number: int, samples: int, generator: Generator | None, device: Any = None
) -> Tensor:
    """Return which of ``number`` stored draws to take, ``(members, samples)``, each member its own.

    When all have been taken, they are shuffled anew. The first few of many are those of a few alone.

    Example:
        >>> without_replacement(2, 3, 6, torch.Generator().manual_seed(0))
        tensor([[2, 0, 1, 2, 0, 1],
                [0, 1, 2, 1, 2, 0]])
    """
    # Even a None would choose the overload that cannot take the symbolic shapes of torch.compile.
    source: dict[str, Any] = {} if generator is None else {"generator": generator}
    rounds = [torch.rand(members, number, device=device, **source).argsort(1) for _ in range(-(-samples // number))]
    return torch.cat(rounds, 1)[:, :samples]


class WithoutReplacement(threading.local):
    """The same, one draw at a time, for as long as a context lasts.

    A model draws sample by sample, and predicts in chunks of samples where memory is short. Within a context around
    all of it the draws are the same, whatever the chunks. Each thread has contexts of its own.

    Example:
        >>> stored, generator = WithoutReplacement(), torch.Generator().manual_seed(0)
        >>> with stored.context():
        ...     [int(stored.next(1, 3, generator)) for _ in range(3)]
        [2, 0, 1]
    """

    def __init__(self) -> None:
        self._within = False
        self._order: Tensor | None = None
        self._taken = 0

    @contextmanager
    def context(self, anew: bool = False) -> Iterator[None]:
        """Start with a new order, unless within such a context already; with ``anew`` also there."""
        if self._within and not anew:
            yield
            return
        before = self._within, self._order, self._taken
        self._within, self._order = True, None
        try:
            yield
        finally:
            self._within, self._order, self._taken = before

    def __reduce__(self) -> Any:
        """Copy none of the contexts: they belong to their threads."""
        return WithoutReplacement, ()

    def next(self, members: int, number: int, generator: Generator | None, device: Any = None) -> Tensor:
        """Return the next position, from 0 to ``number - 1``, for each member: ``(members,)``."""
        assert self._within
        if self._order is None or self._taken == number:
            self._order, self._taken = without_replacement(members, number, number, generator, device), 0
        self._taken += 1
        return self._order[:, self._taken - 1]
