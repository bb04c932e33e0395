"""Features of an example: the input of the network's last layer with weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from slimbayes import batching
from slimbayes._chunks import evaluating
from slimbayes.ensembles.networks import Networks
from slimbayes.model import BayesianModel

_WEIGHTED = (nn.Linear, nn.modules.conv._ConvNd)


def features_of(model: BayesianModel, *inputs: Any) -> Tensor:
    """Return each example's features, those of the members side by side.

    A member's features are the input of the linear or convolutional layer that runs last, at the member's location;
    further axes, such as time or height and width, are averaged over. If there is no such layer, or its input does not
    have one row for each example, the features are the inputs themselves.

    Args:
        model: Any model.
        *inputs: A batch, prepared for the network.

    Returns:
        ``(batch, members * features)``, or ``(batch, numbers of an example's inputs)``.

    Example:
        >>> import slimbayes as sb
        >>> model = sb.rank1(nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 3)), members=2)
        >>> features_of(model, torch.randn(5, 4)).shape
        torch.Size([5, 14])
    """
    batch_dim = model.sampling.batch_dim
    size = batching.batch_size(inputs, batch_dim)
    networks = list(model.net.networks) if isinstance(model.net, Networks) else [model.net]
    with evaluating(model), torch.no_grad(), _one_by_one(model), _last_inputs(networks) as found:
        model(*inputs, samples=0)
    rows = [_per_row(layer, x, batch_dim) for layer, x in found]
    # All members in one pass, member-major, or a pass for each.
    if rows and all(x is not None and len(x) * len(rows) == model.members * size for x in rows):
        joined = torch.cat([x for x in rows if x is not None])
        return joined.unflatten(0, (model.members, size)).transpose(0, 1).flatten(1).float()
    return _inputs_themselves(inputs, size)


@contextmanager
def _one_by_one(model: BayesianModel) -> Iterator[None]:
    """Let whole networks run one after another, since hooks cannot look into ``torch.func.vmap``."""
    if not isinstance(model.net, Networks):
        yield
        return
    wanted, model.net.vectorised = model.net.vectorised, False
    try:
        yield
    finally:
        model.net.vectorised = wanted


@contextmanager
def _last_inputs(networks: list[nn.Module]) -> Iterator[list[tuple[nn.Module, Tensor]]]:
    """Yield a list that gets, after each pass of a network, the layer that ran last and its input."""
    found: list[tuple[nn.Module, Tensor]] = []
    latest: list[tuple[nn.Module, Tensor]] = []

    def note(layer: nn.Module, args: Any, kwargs: Any) -> None:
        latest[:] = [(layer, x) for x in batching.tensors((args, kwargs))][:1]

    def keep(network: nn.Module, args: Any, output: Any) -> None:
        found.extend(latest)
        latest.clear()

    layers = {part for network in networks for part in network.modules() if isinstance(part, _WEIGHTED)}
    hooks = [layer.register_forward_pre_hook(note, with_kwargs=True) for layer in layers]
    # A network may stand for several members: it is called for each, but watched once.
    hooks += [
        network.register_forward_hook(keep) for network in {id(network): network for network in networks}.values()
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _per_row(layer: nn.Module, x: Tensor, batch_dim: int) -> Tensor | None:
    """Return ``(rows, channels)``, or None if the layer got no batch."""
    if x.dim() < 2:
        return None
    if isinstance(layer, nn.Linear):
        rows = x.movedim(batch_dim, 0) if x.dim() > 2 else x
        return rows if rows.dim() == 2 else rows.flatten(1, -2).mean(1)
    return x.flatten(2).mean(2) if x.dim() == len(layer.kernel_size) + 2 else None  # type: ignore[arg-type]


def _inputs_themselves(inputs: tuple[Any, ...], size: int) -> Tensor:
    parts = [x for x in inputs if isinstance(x, Tensor) and x.dim() and len(x) == size]
    if not parts:
        raise ValueError("These examples have no features: the network's last layer has not one row for each of them.")
    return torch.cat([x.reshape(size, -1).float() for x in parts], 1)
