"""Checks that no layer can make: whether the network keeps its rows in order, and which tables it reads by position."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor

from slimbayes import batching
from slimbayes._chunks import evaluating
from slimbayes._graphs import WHICH_GRAPH
from slimbayes.ensembles.networks import Networks
from slimbayes.layers.base import NoRowsError
from slimbayes.layers.embedding import GaussianEmbedding
from slimbayes.layers.transformer import without_fused_paths

if TYPE_CHECKING:
    from slimbayes.model import BayesianModel


def check_rows(model: BayesianModel, args: Any, kwargs: Any) -> None:
    """Raise unless the model's answers for its first and last member are those members' own."""
    wrong = _mixed_up(model, args, kwargs)
    if wrong is not None:
        raise ValueError(
            f"Output {wrong[0]} of the network is not what member {wrong[1]} alone says: the network does not "
            "keep its rows in order. Something in its forward sorts, mixes or concatenates along the batch "
            "axis, or a converted layer sees something else than the batch there. Concatenate along "
            "another axis, call the layer twice instead, or exclude the layers in between."
        )


def check_graph(model: BayesianModel, args: Any, kwargs: Any) -> None:
    """Raise if a network mixes the nodes of all draws, as a norm or a pooling over all nodes does.

    Called in the first pass on a graph, also of one draw: training on one is not to end where predictions take more.
    """
    with _trying(model) as first:
        if not first or model.graphs_known:
            return
        wrong = None
        alone = model.independent or (model.members == 1 and next(model.stochastic(), None) is None)
        with suppress(Exception):  # what is wrong with the inputs shows in the pass itself
            wrong = None if alone else _mixed_up(model, args, kwargs)
            model.graphs_known = wrong is None
        if wrong is not None:
            raise ValueError(
                f"Output {wrong[0]} of the network for several draws is not what member {wrong[1]} alone says on the "
                "graph: something mixes the nodes of all draws, such as a norm or a pooling over all nodes (LayerNorm, "
                f"GraphNorm or TopKPooling of PyTorch Geometric without a `batch`). {WHICH_GRAPH}"
            )


def _mixed_up(model: BayesianModel, args: Any, kwargs: Any) -> tuple[int, int] | None:
    """Return the number of the first output, and the member, whose draws do not answer for themselves; else None.

    The draws are spread widely, so that members differ also where they start alike.
    """
    plain_args, plain_kwargs = batching.unmarked((args, kwargs))
    with evaluating(model), torch.no_grad(), without_fused_paths():
        samples = 2 if model.members == 1 else 1  # one draw alone has no rows that another could get
        generator = Generator(model.device).manual_seed(0)  # torch's own goes on as if nothing had been drawn
        draw = {name: _spread(value, generator) for name, value in model.draw(samples, generator).items()}
        foldable = all(value.is_floating_point() for value in draw.values())
        outputs = list(batching.tensors(model(*args, draw=draw, **kwargs)))
        for row in {0, model.members * samples - 1}:
            member = row // samples
            if foldable:
                net = model.member(member, sample=row % samples, draw=draw)
                alone = list(batching.tensors(net(*plain_args, **plain_kwargs)))
            else:
                one = {name: value[row : row + 1] for name, value in draw.items()}
                alone = [x[0] if x.dim() else x for x in batching.tensors(model(*args, draw=one, **kwargs))]
            for position, (found, expected) in enumerate(zip(outputs, alone, strict=True)):
                if found.dim() and not _alike(found[row], expected):
                    return position, member
    return None


@contextmanager
def _trying(model: BayesianModel) -> Iterator[bool]:
    """Let passes try the model, in evaluation mode; they are not its first ones, and do not try it in turn.

    Other threads wait. Gives whether this is not such a pass itself.
    """
    with model.trial:
        if model.passes.looking is not None:
            yield False
            return
        checked, model._checked, model.passes.looking = model._checked, True, {}
        try:
            with evaluating(model), torch.no_grad():
                yield True
        finally:
            model._checked, model.passes.looking = checked, None


def look_at_rows(model: BayesianModel, args: Any, kwargs: Any, size: int) -> None:
    """Find the layers that do not see the batch: what they are given is as long for one example as for two.

    Random tables that are read by position are among them, and are told so; others are an error. The number of rows
    alone would not tell: 32 positions may well meet a batch of 32 rows, or of 8.

    Args:
        model: The model, which is sent one example, and the same one twice; other threads wait for that.
        args: Inputs of its network.
        kwargs: Its keyword arguments.
        size: Their batch size.
    """
    with _trying(model) as first:
        if not first or model.rows_known:
            return
        layers = {layer.name: layer for layer in model.layers() if not isinstance(layer, Networks)}
        # A network that cannot answer one example leaves it open, and one that cannot take the inputs is asked again.
        model.rows_known = not layers or batching.addresses_rows((args, kwargs))
        if not model.rows_known:
            _look_at(model, layers, args, kwargs, size)


def _look_at(model: BayesianModel, layers: dict[str, Any], args: Any, kwargs: Any, size: int) -> None:
    batch_dim = model.sampling.batch_dim
    try:
        one = batching.narrow((args, kwargs), 0, 1, size, batch_dim)
        two = batching.on_batch(one, 1, batch_dim, lambda x, axis: batching.tile(x, axis, 2), marked=True)
    except Exception:  # such as a dataclass that takes tensors alone
        return
    tables = {name: layer for name, layer in layers.items() if isinstance(layer, GaussianEmbedding)}
    first, second, error = _seen(model, one, two)
    if error is not None and not isinstance(error, NoRowsError):
        return  # the network cannot answer one example, or what is wrong with the inputs shows in the pass itself
    before, found = error, list[str]()
    while new := [name for name in _same(first, second) if name in tables and name not in found]:
        found += new
        for name in new:
            tables[name].by_position = True  # what it answers has rows from now on, and so have the layers behind it
        first, second, error = _seen(model, one, two)
        if error is not None and not (before is not None and isinstance(error, NoRowsError)):
            raise ValueError(
                f"The tables {', '.join(found)} are read by position, so that a draw of them is looked up for each "
                f"row; the network cannot use that ({error}). Leave them point estimates: exclude={found!r}."
            ) from error
    if error is not None:
        raise error
    if without := [name for name in _same(first, second) if name not in found]:
        raise NoRowsError(
            f"Layer {without[0]} got {first[without[0]][0]} rows for one example, and as many for two: its input does "
            "not carry the batch where the layer looks for it, and its draws cannot be dealt out. Set the layer's "
            f"`row_dim`, convert with another `batch_dim`, or leave it: exclude={without!r}."
        )
    for name in tables.keys() & first.keys():
        tables[name].by_position = name in found
    model.rows_known = True


def _seen(model: BayesianModel, *several: Any) -> tuple[dict[str, list[Any]], dict[str, list[Any]], Exception | None]:
    """Return what the layers see of rows with the one inputs and the others, by name, and the error that ended it."""
    found: list[dict[str, list[Any]]] = [{}, {}]
    for seen, (args, kwargs) in zip(found, several, strict=True):
        model.passes.looking = seen
        try:
            model.forward(*args, samples=0, **kwargs)
        except Exception as error:
            return found[0], found[1], error
    return found[0], found[1], None


def _same(first: dict[str, list[Any]], second: dict[str, list[Any]]) -> list[str]:
    """Return the names of the layers one of whose calls saw the same for both, as far as both passes came."""
    return [
        name
        for name, calls in first.items()
        if any(one == two for one, two in zip(calls, second.get(name, []), strict=False))
    ]


def _spread(value: Tensor, generator: Generator) -> Tensor:
    if not value.is_floating_point():
        return value  # seeds differ enough
    random = torch.rand(value.shape, generator=generator, dtype=value.dtype, device=value.device)
    return value * (1 + 0.3 * random)


def _alike(found: Tensor, expected: Tensor) -> bool:
    if found.shape != expected.shape:
        return False
    if not found.is_floating_point():
        return True  # such as labels, where a tie may fall either way
    scale = expected[expected.isfinite()].abs().max().item() if expected.isfinite().any() else 0.0
    return torch.allclose(found.double(), expected.double(), rtol=1e-2, atol=1e-3 * scale, equal_nan=True)
