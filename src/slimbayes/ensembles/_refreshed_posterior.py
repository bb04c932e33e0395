"""Posteriors over parameters whose draws have running statistics of their own."""

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager

import torch
from torch import Generator, Tensor

from slimbayes.ensembles._trajectory import TrajectoryPosterior
from slimbayes.ensembles._without_replacement import WithoutReplacement


class RefreshedPosterior(TrajectoryPosterior):
    """A posterior over parameters; a draw's running statistics are measured for it.

    ``refresh`` makes a number of draws, each from a seed, and measures their statistics. What is stored of a draw is
    its seed and its statistics, not its weights; from then on draws are these, taken without replacement. Before,
    draws have the mean of the statistics that were collected, which is a poor guess.

    Args:
        members: Networks that train side by side.
        like: A state vector, ``(size,)``, whose type and device the posterior takes.
        weights: Number P of parameters.
        keep: Deviations to keep.
        has_norms: Whether the network has running statistics, rather than constant buffers at most.

    Shape:
        - ``seeds``: ``(members, draws)``. ``drawn_statistics``: ``(members, draws, size - P)``.
        - ``location_statistics``: ``(members, size - P)``.
    """

    seeds: Tensor
    drawn_statistics: Tensor
    location_statistics: Tensor
    refreshed_at: Tensor
    #: Buffers whose second axis has a length that only the file of a saved model knows.
    stored: tuple[str, ...] = ("seeds", "drawn_statistics")
    #: Number of snapshots at which something was done; plain numbers of them besides, for torch.compile.
    marks: tuple[str, ...] = ("refreshed_at",)

    def __init__(self, members: int, like: Tensor, weights: int, keep: int, has_norms: bool) -> None:
        super().__init__(members, like, weights, keep)
        self.has_norms = has_norms
        statistics = self.size - weights
        self.register_buffer("seeds", torch.zeros(members, 0, dtype=torch.int64, device=like.device))
        self.register_buffer("drawn_statistics", self.mean.new_zeros(members, 0, statistics))
        self.register_buffer("location_statistics", self.mean.new_zeros(members, statistics))
        self.marked: dict[str, int] = {}
        for name in self.marks:
            self.register_buffer(name, torch.zeros_like(self.count))
            self.marked[name] = 0
        self.stored_draws = WithoutReplacement()
        self.warned = False
        self.register_load_state_dict_pre_hook(_make_room)
        self.register_load_state_dict_post_hook(_read_marks)

    # ------------------------------------------------------------------ to be said by the posterior

    @abstractmethod
    def new(self, generator: Generator | None) -> Tensor:
        """Draw the parameters of each member anew, ``(members, P)``."""

    @abstractmethod
    def again(self, seeds: Tensor) -> Tensor:
        """Return the parameters that seeds ``(members,)`` stand for, ``(members, P)``."""

    @abstractmethod
    def centre(self) -> Tensor:
        """Return the parameters at the location, ``(members, P)``."""

    def new_seeds(self, samples: int, seed: int) -> Tensor:
        """Return seeds of ``samples`` draws of each member, ``(members, samples)``."""
        return torch.randint(2**62, (self.members, samples), generator=Generator().manual_seed(seed))

    # ------------------------------------------------------------------ draws

    def mark(self, name: str) -> None:
        """Note that something has been done with the snapshots that are there now."""
        self.marked[name] = self.collected
        getattr(self, name).fill_(self.collected)

    def holds(self, name: str) -> bool:
        """Tell whether it has been done, and nothing was collected since."""
        return 0 < self.marked[name] == self.collected

    def forget(self, name: str) -> None:
        """Note that it has to be done anew."""
        self.marked[name] = 0
        getattr(self, name).zero_()

    def without_replacement(self, anew: bool = False) -> AbstractContextManager[None]:
        """Return a context within which refreshed draws come without replacement."""
        return self.stored_draws.context(anew)

    def sample(self, samples: int, generator: Generator | None) -> Tensor:
        """Draw ``(members, samples, size)``: refreshed draws, or new ones where nothing needs or had a refresh."""
        with self.stored_draws.context(), self._in_own_precision():
            return torch.stack([self._one(generator) for _ in range(samples)], 1)

    def _one(self, generator: Generator | None) -> Tensor:
        if not self.holds("refreshed_at"):
            self._warn()
            return torch.cat([self.new(generator), self.mean[:, self.weights :]], 1)
        picked = self.stored_draws.next(self.members, self.seeds.shape[1], generator, self.seeds.device)
        rows = torch.arange(self.members, device=self.seeds.device)
        return torch.cat([self.again(self.seeds[rows, picked]), self.drawn_statistics[rows, picked]], 1)

    def location(self) -> Tensor:
        """Return the members' locations, with statistics of their own where refreshed: ``(members, size)``."""
        with self._in_own_precision():
            centre = self.centre()
        if self.holds("refreshed_at"):
            return torch.cat([centre, self.location_statistics], 1)
        self._warn()
        return torch.cat([centre, self.mean[:, self.weights :]], 1)

    def _in_own_precision(self) -> AbstractContextManager[object]:
        """Return a context without autocast: draws would not be those whose statistics were measured."""
        return torch.autocast(self.mean.device.type, enabled=False)

    def _warn(self) -> None:
        if self.has_norms and not self.warned and not torch.compiler.is_compiling():
            self.warned = True
            warnings.warn(
                "This network has batch-norm statistics, and its draws have only the mean of those met in training. "
                "Call model.refresh(batches) after the last model.collect(), to measure them for each draw.",
                stacklevel=2,
            )

    def make_room(self, state: Mapping[str, Tensor], prefix: str) -> None:
        """Take the lengths of what is stored from the state of a saved model."""
        for name in self.stored:
            own, theirs = getattr(self, name), state.get(prefix + name)
            if theirs is not None and theirs.dim() == own.dim():
                setattr(self, name, own.new_zeros(own.shape[0], theirs.shape[1], *own.shape[2:]))


def _make_room(posterior: RefreshedPosterior, state: Mapping[str, Tensor], prefix: str, *others: object) -> None:
    posterior.make_room(state, prefix)


def _read_marks(posterior: RefreshedPosterior, incompatible: object) -> None:
    posterior.marked = {name: int(getattr(posterior, name)) for name in posterior.marks}
