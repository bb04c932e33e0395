"""The rows of the price table: what is measured on every network, and what it is to cost at most."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

import slimbayes as sb
from benchmarks.networks import CLASSES, MEMBERS, PLAIN_NETWORKS, BenchNetwork
from benchmarks.steps import Step, prediction, train_step

__all__ = ["MEMORY", "PREDICTION", "ROWS", "TRAIN", "Row"]

TRAIN, PREDICTION, MEMORY = "train", "prediction", "memory"
#: Different ones, which train steps go round: four steps are an epoch.
BATCHES = 4


@dataclass(frozen=True)
class Row:
    """A method, what it does, and what that may cost.

    Attributes:
        name: In the JSON and on the command line.
        title: In the printed table.
        kind: ``"train"``, ``"prediction"`` or ``"memory"``. Rows of a kind are measured in one interleaved run and
            divided by its first.
        convert: Makes a model out of the plain network; None to take it as it is.
        copies: Rows that an example becomes inside the model.
        targets: Ratio to the plain network that is expected, by network: what torch's own products gave on an AMD
            processor (the run stored at 521c2ea), and for bfloat16 what is aimed at.
        dense_only: Measured on networks of vectors alone.
        also_against: Another row of the kind that this one is divided by, too.
    """

    name: str
    title: str
    kind: str
    convert: Callable[[nn.Module], nn.Module] | None = None
    copies: int = 1
    targets: dict[str, float] = field(default_factory=dict)
    dense_only: bool = False
    also_against: str | None = None

    def applies(self, network: BenchNetwork) -> bool:
        """Return whether the row is measured on a network."""
        return not self.dense_only or len(network.row_shape) == 1

    def build(self, network: BenchNetwork, device: torch.device) -> tuple[nn.Module, Step]:
        """Return the model and what is timed; under one seed all rows of a kind have the same network and batches."""
        model, batches = self.model(network, device)
        if self.kind == PREDICTION:
            return model, prediction(model, batches[0][0], network.precision)
        return model, train_step(model, batches, precision=network.precision)

    def model(self, network: BenchNetwork, device: torch.device) -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
        """Return the model and its batches."""
        net = network.build()
        batches = [self._batch(network, device) for _ in range(1 if self.kind == PREDICTION else BATCHES)]
        return network.place(net if self.convert is None else self.convert(net), device), batches

    def batch_bytes(self, network: BenchNetwork) -> int:
        """Return the size of a batch, which is there before a step begins."""
        return network.rows // self.copies * math.prod(network.row_shape) * torch.get_default_dtype().itemsize

    def _batch(self, network: BenchNetwork, device: torch.device) -> tuple[Tensor, Tensor]:
        x, y = network.inputs(device=device), torch.randint(CLASSES, (network.rows,), device=device)
        examples = network.rows // self.copies
        return x[:examples], y[:examples]


def _targets(*ratios: float) -> dict[str, float]:
    return dict(zip(PLAIN_NETWORKS, ratios, strict=True))


BATCH_ENSEMBLE = _targets(1.14, 1.05, 1.21, 1.10, 1.06)
PER_EXAMPLE = _targets(1.20, 1.06, 1.48, 1.30, 1.07) | {"resnet_20_bf16": 1.2}
PREDICTED = _targets(1.18, 1.05, 1.31, 1.09, 1.06)
PEAK = _targets(1.25, 1.25, 1.7, 1.7, 1.25)

batch_ensemble = partial(sb.batch_ensemble, members=MEMBERS)
rank1 = partial(sb.rank1, members=MEMBERS)
shared = partial(sb.rank1, members=MEMBERS, noise="shared")
split = partial(sb.rank1, members=MEMBERS, train_on="split")
tied = partial(sb.k_tied, k=2, prior_std=0.3, estimator="local")

#: The rows of the table, by name.
ROWS = {
    row.name: row
    for row in (
        Row("plain", "plain network, train step", TRAIN),
        Row("batch_ensemble", "batch_ensemble, train step", TRAIN, batch_ensemble, MEMBERS, BATCH_ENSEMBLE),
        Row("rank1 shared", "rank1, shared draw, train step", TRAIN, shared, MEMBERS),
        Row("rank1 per example", "rank1, noise per example, train step", TRAIN, rank1, MEMBERS, PER_EXAMPLE),
        Row("rank1 split", 'rank1, train_on="split", epoch', TRAIN, split, 1, {"resnet_20_bf16": 1.2}),
        Row("k_tied local", "k_tied, local, train step", TRAIN, tied, 1, dense_only=True),
        Row("plain prediction", "plain network, prediction", PREDICTION),
        Row("rank1 prediction", "rank1, prediction, per row", PREDICTION, rank1, MEMBERS, PREDICTED),
        Row("rank1 shared prediction", "rank1, shared draw, prediction", PREDICTION, shared, MEMBERS),
        Row("plain memory", "plain network, activation memory", MEMORY),
        Row("rank1 memory", "rank1, noise per example, activation memory", MEMORY, rank1, MEMBERS, PEAK),
    )
}
