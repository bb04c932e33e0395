"""Batch-norm statistics of draws: a network with other weights needs other running statistics."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.utils.rnn import PackedSequence

from slimbayes import batching
from slimbayes._checks import check_count
from slimbayes.ensembles._refreshed_posterior import RefreshedPosterior
from slimbayes.ensembles._states import StateLayout


def running_norms(net: nn.Module) -> list[_NormBase]:
    """Return the norm layers that keep running statistics."""
    return [part for part in net.modules() if isinstance(part, _NormBase) and part.running_mean is not None]


def inputs_of(batch: Any, device: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the network's arguments from a batch, such as a loader gives.

    Args:
        batch: Inputs, or a tuple or list that begins with them. Inputs are a tensor; or several, in a tuple or list;
            or keyword arguments, in a dict.
        device: Where to put them.
    """
    inputs = batch[0] if _several(batch) else batch
    inputs = batching.map_leaves(lambda leaf: leaf.to(device), inputs)
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if _several(inputs) else (inputs,)), {}


def _several(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and not isinstance(value, PackedSequence)


def check_batches(batches: Any) -> None:
    """Raise unless ``batches`` can be gone through again and again."""
    if not isinstance(batches, Iterable) or iter(batches) is batches:
        raise TypeError(
            f"Expected argument `batches` to be something to go through several times, but got "
            f"{type(batches).__name__}. Give a DataLoader or a list of batches."
        )


@torch.no_grad()
def refresh_statistics(
    posterior: RefreshedPosterior,
    networks: Sequence[nn.Module],
    layout: StateLayout,
    batches: Any,
    samples: int,
    seed: int,
) -> None:
    """Measure the statistics of ``samples`` draws of each member, and of its location.

    Args:
        posterior: The posterior, which stores them.
        networks: Copies of the members; they are changed.
        layout: Their layout.
        batches: See ``inputs_of``.
        samples: Draws of each member.
        seed: Of their seeds.
    """
    check_count("samples", samples, 1)
    check_count("seed", seed, 0)
    check_batches(batches)
    posterior.check_ready()
    posterior.forget("refreshed_at")
    seeds = posterior.new_seeds(samples, seed).to(posterior.count.device)
    begin = posterior.mean[:, posterior.weights :]

    def measured(parameters: Tensor) -> Tensor:
        states = _measure(networks, layout, torch.cat([parameters, begin], 1), batches)
        return states[:, posterior.weights :].to(begin.dtype)

    posterior.drawn_statistics = torch.stack([measured(posterior.again(column)) for column in seeds.unbind(1)], 1)
    posterior.location_statistics, posterior.seeds = measured(posterior.centre()), seeds
    posterior.mark("refreshed_at")
    posterior.warned = False  # so that the next snapshots are warned of anew


def _measure(networks: Sequence[nn.Module], layout: StateLayout, states: Tensor, batches: Any) -> Tensor:
    """Return states ``(members, size)`` with statistics that are the plain average over the batches."""
    for network, state in zip(networks, states, strict=True):
        layout.load(network, state)
        network.eval()  # dropout stays off
        for norm in running_norms(network):
            norm.reset_running_stats()
            norm.train()
    number = 0
    for number, batch in enumerate(batches, 1):
        args, kwargs = inputs_of(batch, states.device)
        for network in networks:
            for norm in running_norms(network):
                # None averages over calls; an instance norm does not know it.
                norm.momentum = None if isinstance(norm, _BatchNorm) else 1 / number
            network(*args, **kwargs)
    if not number:
        raise ValueError("Expected argument `batches` to hold at least one batch of inputs, but it is empty.")
    return torch.stack([layout.vector(network) for network in networks])
