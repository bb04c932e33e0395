"""The one table of (method, network) cases; a new method is a few new rows."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import slimbayes as sb
from slimbayes.methods.laplace import dense_normal_model

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
    #: A draw can be folded into the weights of a plain network.
    foldable: bool = True
    #: Options under which the model at its location is the given network.
    neutral: dict[str, Any] = field(default_factory=dict)


def ensemble_of(net: nn.Module, members: int = 3, **options: Any) -> sb.BayesianModel:
    """Return an ensemble around a network: the members' mean is not meant to be it, but the first member is."""
    return sb.deep_ensemble([net, *(spread(net) for _ in range(members - 1))], **options)


def spread(net: nn.Module, by: float = 0.1) -> nn.Module:
    """Return a copy of a network with other weights."""
    other = copy.deepcopy(net)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(by * torch.randn_like(parameter))
    return other


def chains_of(make: Any, samples: int = 6, by: float = 0.1, **options: Any) -> sb.BayesianModel:
    """Return a model of chains that took some steps of a random walk and kept where they came to."""
    model = sb.sgmcmc(make, keep=5, **options)
    walking = [p for n, p in model.named_parameters() if options.get("over") != "factors" or n.endswith("loc")]
    with torch.no_grad():
        for _ in range(samples):
            for parameter in walking:
                parameter.add_(by * torch.randn_like(parameter))
            model.collect()
    return model


def weight_chains_of(net: nn.Module, members: int = 3, **options: Any) -> sb.BayesianModel:
    return chains_of([net, *(spread(net) for _ in range(members - 1))], **options)


def around(model: sb.BayesianModel, by: float = 0.1) -> sb.BayesianModel:
    """Let a model collect snapshots on both sides of its networks, which are then its locations."""
    steps = [by * torch.randn_like(parameter) for parameter in model.parameters()]
    with torch.no_grad():
        for sign in (1, -2, 1):
            for parameter, step in zip(model.parameters(), steps, strict=True):
                parameter.add_(sign * step)
            model.collect()
    return model


def refreshed(model: sb.BayesianModel, own_statistics: bool) -> sb.BayesianModel:
    """Give draws batch-norm statistics; the location keeps the network's, if those are to be compared with."""
    posterior = model.net.posterior
    if posterior.has_norms:
        model.refresh([NETWORKS["resnet"].inputs(8)], samples=20)
        if own_statistics:
            posterior.location_statistics.copy_(posterior.mean[:, posterior.weights :])
    return model


def swag_of(net: nn.Module, members: int = 2, own_statistics: bool = False, **options: Any) -> sb.BayesianModel:
    return refreshed(around(sb.swag([net] * members, **options)), own_statistics)


def subspace_of(
    net: nn.Module, members: int = 2, own_statistics: bool = False, gaussian: bool = False, **options: Any
) -> sb.BayesianModel:
    model = around(sb.subspace([net] * members, rank=2, keep=3, **options))
    posterior = model.net.posterior
    posterior.span()
    if gaussian:
        posterior.set_gaussian(torch.zeros(members, 2), torch.eye(2).expand(members, 2, 2))
    else:
        z = torch.randn(members, 10, 2)
        posterior.set_samples(torch.cat([z, -z], 1))
    return refreshed(model, own_statistics)


def gaussian_last_layer(net: nn.Module, **options: Any) -> sb.BayesianModel:
    """Return what ``sb.laplace`` makes, with some other covariance, which needs no data."""
    model = dense_normal_model(net, **options)
    for buffer in next(model.stochastic()).root.buffers():
        buffer.mul_(0.1 + 0.1 * torch.rand_like(buffer))
    return model


METHODS = {
    "deterministic": Method(sb.deterministic, random=False),
    "deep_ensemble": Method(ensemble_of, random=False, neutral={"members": 1}),
    "deep_ensemble_vectorised": Method(ensemble_of, {"vectorised": True}, random=False, neutral={"members": 1}),
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
    "batch_ensemble_rank2_norm": Method(
        sb.batch_ensemble,
        {"rank": 2, "members": 2, "member_norm": True, "member_bias": False, "init": "sign"},
        random=False,
        neutral={"init": "ones"},
    ),
    "swag": Method(swag_of, {"rank": 2}, neutral={"own_statistics": True}),
    "swag_diagonal": Method(swag_of, {"rank": 0, "members": 1, "vectorised": True}, neutral={"own_statistics": True}),
    "subspace": Method(subspace_of, neutral={"own_statistics": True}),
    "subspace_gaussian": Method(subspace_of, {"gaussian": True, "vectorised": True}, neutral={"own_statistics": True}),
    "sgmcmc": Method(weight_chains_of, neutral={"members": 1, "by": 0.0}),
    "sgmcmc_factors": Method(chains_of, {"over": "factors", "members": 3}, neutral={"init": "ones", "by": 0.0}),
    "laplace": Method(gaussian_last_layer),
    "laplace_diag": Method(gaussian_last_layer, {"structure": "diag"}),
    "laplace_kron": Method(gaussian_last_layer, {"structure": "kron", "noise": "example"}),
    "mc_dropout": Method(sb.mc_dropout),
    "mc_dropout_after": Method(sb.mc_dropout, {"rate": 0.5, "place": "after", "noise": "shared"}),
    "mc_dropout_element": Method(sb.mc_dropout, {"unit": "element"}, foldable=False),
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
