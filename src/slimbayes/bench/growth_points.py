"""What grows: a train step whose size is changed along one axis at a time."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import nn

import slimbayes as sb
from slimbayes import nets
from slimbayes.bench.lstm import LastOutput
from slimbayes.bench.networks import CLASSES
from slimbayes.bench.steps import Step, train_step

__all__ = ["AXES", "Axis", "Point"]


@dataclass(frozen=True)
class Point:
    """A rank-1 network with noise per example, and the batch that it is trained on.

    Attributes:
        members: Mixture components K.
        samples: Draws of each member.
        width: Units of a layer, and of the inputs.
        depth: Linear layers of the MLP.
        rows: That run through the network with one sample: examples times K, or examples if they are split.
        steps: Length of the sequences of an LSTM; None for an MLP.
        split: Deal the examples out among the members instead of showing each to all.
    """

    members: int = 4
    samples: int = 1
    width: int = 256
    depth: int = 3
    rows: int = 256
    steps: int | None = None
    split: bool = False

    @property
    def examples(self) -> int:
        """Examples of a batch."""
        return self.rows if self.split else self.rows // self.members

    def build(self) -> tuple[sb.BayesianModel, Step]:
        """Return the model and its train step, from torch's global generator.

        Example:
            >>> model, step = Point(width=8, rows=8).build()
            >>> step()
            >>> model.members
            4
        """
        shape = (self.width,) if self.steps is None else (self.steps, self.width)
        batch = torch.randn(self.examples, *shape), torch.randint(CLASSES, (self.examples,))
        model = sb.rank1(self._network(), members=self.members, train_on="split" if self.split else "tile")
        step = train_step(model, [batch])
        if self.samples > 1:
            model.forward = partial(model.forward, samples=self.samples)  # type: ignore[method-assign]
        return model, step

    def _network(self) -> nn.Module:
        if self.steps is not None:
            return LastOutput(self.width)
        return nets.MLP(self.width, [self.width] * (self.depth - 1), CLASSES)


@dataclass(frozen=True)
class Axis:
    """Points that differ in one thing.

    Attributes:
        name: What the command line calls it.
        title: What tables call it.
        vary: The field of ``Point`` that takes the values.
        values: Ascending.
        base: The other fields' values.
        rows_follow: Rows for each unit of the value, where more of it means more rows.

    Example:
        >>> AXES["depth"].points()[0].depth, AXES["members"].points()[-1].rows
        (2, 4096)
    """

    name: str
    title: str
    vary: str
    values: tuple[int, ...]
    base: Point = field(default_factory=Point)
    rows_follow: int | None = None

    def points(self) -> list[Point]:
        """Return one point for each value."""
        return [replace(self.base, **self._changes(value)) for value in self.values]

    def _changes(self, value: int) -> dict[str, Any]:
        rows = {} if self.rows_follow is None else {"rows": self.rows_follow * value}
        return {self.vary: value, **rows}


def _doubling(first: int, last: int) -> tuple[int, ...]:
    return tuple(first * 2**power for power in range((last // first).bit_length()))


_BASE, _SEQUENCE = Point(), Point(width=128, rows=32, steps=32)

#: By name.
AXES = {
    axis.name: axis
    for axis in (
        Axis("members", "members, each on all examples", "members", _doubling(1, 64), _BASE, 64),
        Axis("split", "members, examples split", "members", _doubling(1, 64), replace(_BASE, split=True)),
        Axis("samples", "samples", "samples", _doubling(1, 16), _BASE),
        Axis("width", "width", "width", _doubling(64, 1024), _BASE),
        Axis("depth", "depth", "depth", _doubling(2, 32), _BASE),
        Axis("rows", "rows", "rows", _doubling(64, 4096), _BASE),
        Axis("steps", "length of the sequence (LSTM)", "steps", _doubling(8, 128), _SEQUENCE),
    )
}
