"""The one table of (method, network) cases; a new method is a few new rows."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import slimbayes as sb

BATCH, CLASSES = 5, 3


class Block(nn.Module):
    """A residual block whose padding and groups a careless conversion would lose."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, (3, 1), padding=(1, 0), padding_mode="circular", groups=2, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=2, dilation=2),
        )

    def forward(self, x):
        return x + self.body(x)


class NestedResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, stride=2)
        self.stages = nn.ModuleList([nn.Sequential(Block(4), Block(4))])
        self.heads = nn.ModuleDict({"classes": nn.Linear(4, CLASSES)})

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.heads["classes"](x.mean((2, 3)))


class PackedLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(12, CLASSES)

    def forward(self, packed):
        output, _ = self.lstm(packed)
        padded, lengths = pad_packed_sequence(output, batch_first=True)
        return self.head(padded.sum(1) / lengths.unsqueeze(1).to(padded))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8, padding_idx=0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, tokens):
        x = self.encoder(self.embed(tokens), src_key_padding_mask=tokens == 0)
        return self.head(x[:, 0])


class Tied(nn.Module):
    """A language model whose decoder is its embedding, and whose two layers are one."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(CLASSES, 6)
        self.shared = nn.Linear(6, 6)
        self.again = self.shared
        self.decoder = nn.Linear(6, CLASSES, bias=False)
        self.decoder.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens).mean(1)
        return self.decoder(self.again(self.shared(x).tanh()))


def tokens(batch: int) -> torch.Tensor:
    ids = torch.randint(1, 11, (batch, 7))
    ids[0, 4:] = 0
    return ids


def packed(batch: int) -> Any:
    lengths = torch.tensor([3, 6, 2, 6, 1] * batch)[:batch]
    return pack_padded_sequence(torch.randn(batch, 6, 4), lengths, batch_first=True, enforce_sorted=False)


@dataclass(frozen=True)
class Network:
    build: Callable[[], nn.Module]
    inputs: Callable[[int], Any]
    #: Whether the whole forward pass compiles into one graph; packing reads lengths, which breaks it.
    one_graph: bool = True


NETWORKS = {
    "mlp_3d": Network(
        lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, CLASSES)), lambda batch: torch.randn(batch, 5, 4)
    ),
    "resnet": Network(NestedResNet, lambda batch: torch.randn(batch, 3, 9, 9)),
    "lstm": Network(PackedLSTM, packed, one_graph=False),
    "transformer": Network(Transformer, tokens),
    "tied": Network(Tied, lambda batch: torch.randint(0, CLASSES, (batch, 4))),
}


@dataclass(frozen=True)
class Method:
    convert: Callable[..., sb.BayesianModel]
    options: dict[str, Any] = field(default_factory=dict)
    #: Draws of one member differ from each other.
    random: bool = True
    #: Options under which the model at its location is the given network.
    neutral: dict[str, Any] = field(default_factory=dict)


METHODS = {
    "rank1": Method(sb.rank1, neutral={"init": "ones"}),
    "rank1_cauchy": Method(
        sb.rank1, {"family": "cauchy", "dropout_rate": 1e-6, "clip": 10.0}, neutral={"init": "ones"}
    ),
    "rank1_student_t": Method(
        sb.rank1, {"family": "student_t", "prior_family": "cauchy", "factors": "input"}, neutral={"init": "ones"}
    ),
    "rank1_log_normal": Method(
        sb.rank1, {"family": "log_normal", "factors": "output", "member_bias": False}, neutral={"init": "ones"}
    ),
    "rank1_shared_noise": Method(sb.rank1, {"noise": "shared", "members": 2, "init": "sign"}, neutral={"init": "ones"}),
    "rank1_rank2": Method(
        sb.rank1, {"rank": 2, "members": 3, "member_norm": True, "prior_scale": "trainable"}, neutral={"init": "ones"}
    ),
    "rank1_mean_field_embedding": Method(
        sb.rank1, {"embedding": "mean_field", "scale_prior": "half_cauchy"}, neutral={"init": "ones"}
    ),
    "rank1_one_member": Method(sb.rank1, {"members": 1}, neutral={"init": "ones"}),
    "batch_ensemble": Method(sb.batch_ensemble, random=False, neutral={"init": "ones"}),
    "mean_field": Method(sb.mean_field),
    "mean_field_local": Method(sb.mean_field, {"estimator": "local", "prior": "he", "max_std": 0.2}),
    "mean_field_flipout": Method(sb.mean_field, {"estimator": "flipout", "bayesian_bias": False, "prior": "tied_mean"}),
    "k_tied": Method(sb.k_tied, {"k": 1, "untied": lambda name, module: "head" in name}),
    "k_tied_local": Method(sb.k_tied, {"estimator": "local", "max_std": 0.2}),
    "k_tied_flipout": Method(sb.k_tied, {"k": 3, "estimator": "flipout", "sample_per": "batch"}),
}

CASES = [pytest.param(m, n, id=f"{m}-{n}") for m in METHODS for n in NETWORKS]


def build(method: str, network: str, **options: Any) -> tuple[sb.BayesianModel, Any]:
    """Return a case's model and a batch."""
    torch.manual_seed(1)
    chosen, net = METHODS[method], NETWORKS[network]
    return chosen.convert(net.build(), **{**chosen.options, **options}), net.inputs(BATCH)


def targets(outputs: torch.Tensor) -> torch.Tensor:
    """Return some classes for outputs of shape (draws, batch, *, classes)."""
    return torch.randint(CLASSES, outputs.shape[1:-1])
