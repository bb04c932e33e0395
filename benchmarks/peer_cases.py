"""The peers' train steps, each on the network and the rows that the plain network has."""

from collections.abc import Callable
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import slimbayes as sb
from benchmarks.naive import NaiveRank1, naive_kl
from benchmarks.networks import CLASSES, MEMBERS, BenchNetwork
from benchmarks.price_rows import BATCHES
from benchmarks.steps import NUM_DATA, Step

__all__ = ["PACKAGES", "PEERS", "define_schemas", "peer_step", "replace_layers"]

#: Whose versions are stored.
PACKAGES = ("torch-uncertainty", "bayesian-torch", "tabm", "torchvision", "lightning")

Replace = Callable[[nn.Module], nn.Module | None]


class Peer(NamedTuple):
    """A peer's network. It runs on rows that lie ready for its members, which spares it the copy that we make.

    Attributes:
        model: Returns ``(rows, classes)``, or ``(rows / members, members, classes)``.
        kl: What is added to the cross entropy, if anything.
        examples: Inputs that it is given; fewer than rows if it repeats them itself.
    """

    model: nn.Module
    kl: Callable[[], Tensor] | None
    examples: int


def peer_step(network: BenchNetwork, build: Callable[[BenchNetwork], Peer]) -> Step:
    """Return a function that trains a peer's network by one step, as ``benchmarks.steps.train_step`` does.

    Args:
        network: What it is built from, with its rows.
        build: One of ``PEERS``.
    """
    peer = build(network)
    model = network.place(peer.model).train()
    batches = cycle([(network.inputs(peer.examples), torch.randint(CLASSES, (network.rows,))) for _ in range(BATCHES)])
    optimiser = torch.optim.Adam(model.parameters(), fused=True)

    def step() -> None:
        x, y = next(batches)
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, -2), y)
        if peer.kl is not None:
            loss = loss + (peer.kl() / NUM_DATA).sum()  # a sum, because some return one element and some a scalar
        loss.backward()
        optimiser.step()

    step()
    if idle := [name for name, parameter in model.named_parameters() if parameter.grad is None]:
        raise RuntimeError(f"No gradient reaches {', '.join(idle)}.")
    return step


def replace_layers(model: nn.Module, new: Replace) -> nn.Module:
    """Return the model with every layer replaced for which ``new`` returns another one, at any depth.

    torch-uncertainty's own conversion sets attributes under dotted names, and so fails for nested models.
    """
    for name, layer in list(model.named_modules()):
        if (other := new(layer)) is not None:
            owner, _, last = name.rpartition(".")
            setattr(model.get_submodule(owner), last, other)
    return model


def _of_kind(linear: Callable[[nn.Linear], nn.Module], conv: Callable[[nn.Conv2d], nn.Module]) -> Replace:
    def new(layer: nn.Module) -> nn.Module | None:
        if isinstance(layer, nn.Linear):
            return linear(layer)
        return conv(layer) if isinstance(layer, nn.Conv2d) else None

    return new


# ---------------------------------------------------------------------- torch-uncertainty


def define_schemas() -> torch.library.Library:
    """Define the two operators that torchvision describes on import; they last as long as the result is kept."""
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


_SCHEMAS: list[torch.library.Library] = []


def _prepare_torchvision() -> None:
    """Let torchvision be imported beside a CPU-only torch, which cannot load its compiled operators."""
    spec = find_spec("torchvision")
    if _SCHEMAS or spec is None or spec.origin is None:
        return
    try:
        for path in Path(spec.origin).parent.glob("_C.*"):
            torch.ops.load_library(path)
    except OSError:
        _SCHEMAS.append(define_schemas())


def _torch_uncertainty_batch_ensemble(network: BenchNetwork) -> Peer:
    """The library's default for training: the batch is not repeated, each member has a part of it."""
    _prepare_torchvision()
    from torch_uncertainty.layers import BatchConv2d, BatchLinear
    from torch_uncertainty.methods import BatchEnsemble

    new = _of_kind(
        lambda layer: BatchLinear.from_linear(layer, MEMBERS), lambda layer: BatchConv2d.from_conv2d(layer, MEMBERS)
    )
    return Peer(BatchEnsemble(replace_layers(network.build(), new), MEMBERS), None, network.rows)


def _torch_uncertainty_bayesian(network: BenchNetwork) -> Peer:
    _prepare_torchvision()
    from torch_uncertainty.layers import BayesConv2d, BayesLinear
    from torch_uncertainty.losses import KLDiv

    def linear(layer: nn.Linear) -> nn.Module:
        return BayesLinear(layer.in_features, layer.out_features, bias=layer.bias is not None)

    def conv(layer: nn.Conv2d) -> nn.Module:
        sizes = layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding
        return BayesConv2d(*sizes, bias=layer.bias is not None)

    model = replace_layers(network.build(), _of_kind(linear, conv))
    return Peer(model, KLDiv(model), network.rows)


# ---------------------------------------------------------------------- bayesian-torch


def _bayesian_torch(estimator: str) -> Callable[[BenchNetwork], Peer]:
    def build(network: BenchNetwork) -> Peer:
        from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss

        model = network.build()
        settings = {  # those of its README
            "prior_mu": 0.0,
            "prior_sigma": 1.0,
            "posterior_mu_init": 0.0,
            "posterior_rho_init": -3.0,
            "type": estimator,
            "moped_enable": False,
            "moped_delta": 0.5,
        }
        dnn_to_bnn(model, settings)
        return Peer(model, lambda: get_kl_loss(model), network.rows)

    return build


# ---------------------------------------------------------------------- tabm


def _tabm(network: BenchNetwork) -> Peer:
    from tabm import EnsembleView, batchensemble_linear_layers_

    model = network.build()
    if any(isinstance(layer, nn.Conv2d) for layer in model.modules()):
        raise ValueError("tabm has linear layers only.")
    batchensemble_linear_layers_(model, k=MEMBERS, scaling_init="random-signs")
    return Peer(nn.Sequential(EnsembleView(k=MEMBERS), model), None, network.rows // MEMBERS)


# ---------------------------------------------------------------------- ours, beside the peers of the same method


def _mean_field(estimator: str) -> Callable[[BenchNetwork], Peer]:
    def build(network: BenchNetwork) -> Peer:
        model = sb.mean_field(network.build(), prior_std=1.0, estimator=estimator, sample_per="batch")
        return Peer(model, model.kl, network.rows)

    return build


# ---------------------------------------------------------------------- plain torch


def _naive(network: BenchNetwork) -> Peer:
    def new(layer: nn.Module) -> nn.Module | None:
        return NaiveRank1(layer, MEMBERS) if isinstance(layer, (nn.Linear, nn.Conv2d)) else None

    model = replace_layers(network.build(), new)
    return Peer(model, lambda: naive_kl(model), network.rows)


#: By the name of the case.
PEERS: dict[str, Callable[[BenchNetwork], Peer]] = {
    "slimbayes mean_field Flipout": _mean_field("flipout"),
    "slimbayes mean_field Reparameterization": _mean_field("reparameterization"),
    "torch-uncertainty BatchEnsemble": _torch_uncertainty_batch_ensemble,
    "torch-uncertainty Bayesian": _torch_uncertainty_bayesian,
    "bayesian-torch Flipout": _bayesian_torch("Flipout"),
    "bayesian-torch Reparameterization": _bayesian_torch("Reparameterization"),
    "tabm BatchEnsemble": _tabm,
    "naive rank-1 per example": _naive,
}
