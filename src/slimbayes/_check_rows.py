"""Checks that no layer can make: whether the network keeps its rows in order, and which tables it reads by position."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor

from slimbayes import batching
from slimbayes._chunks import evaluating
from slimbayes.layers.embedding import GaussianEmbedding
from slimbayes.layers.transformer import without_fused_paths

if TYPE_CHECKING:
    from slimbayes.model import BayesianModel

#: Held while a model looks for its tables; the passes that it makes meanwhile, in the same thread, do not look.
_LOOKING = threading.RLock()
_looked_at: list[Any] = []


def check_rows(model: BayesianModel, args: Any, kwargs: Any) -> None:
    """Raise unless the model's answers for its first and last member are those members' own.

    The draws are spread widely, so that members differ also where they start alike.
    """
    plain_args, plain_kwargs = batching.unmarked((args, kwargs))
    with evaluating(model), torch.no_grad(), without_fused_paths():
        samples = 2 if model.members == 1 else 1  # one draw alone has no rows that another could get
        draw = {name: _spread(value) for name, value in model.draw(samples).items()}
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
                    raise ValueError(
                        f"Output {position} of the network is not what member {member} alone says: the network does "
                        "not keep its rows in order. Something in its forward sorts, mixes or concatenates along the "
                        "batch axis, or a converted layer sees something else than the batch there. Concatenate along "
                        "another axis, call the layer twice instead, or exclude the layers in between."
                    )


def find_position_tables(model: BayesianModel, args: Any, kwargs: Any, size: int) -> None:
    """Find the random tables that are read by position: what is looked up is as long for one example as for two.

    The number of rows alone would not tell: 32 positions may well meet a batch of 32 rows, or of 8.

    Args:
        model: The model, which is sent one example, and the same one twice; other threads wait for that.
        args: Inputs of its network.
        kwargs: Its keyword arguments.
        size: Their batch size.
    """
    with _LOOKING:
        if model.tables_known or model in _looked_at:
            return
        tables = [layer for layer in model.layers() if isinstance(layer, GaussianEmbedding)]
        checked = model._checked
        model._checked, _looked_at[:] = True, [model]  # the passes that look are not the first
        try:
            if tables and not batching.addresses_rows((args, kwargs)):
                with evaluating(model), torch.no_grad():
                    _look_at(model, tables, args, kwargs, size)
            model.tables_known = True
        finally:
            model._checked = checked
            _looked_at.clear()


def _look_at(model: BayesianModel, tables: list[GaussianEmbedding], args: Any, kwargs: Any, size: int) -> None:
    batch_dim = model.sampling.batch_dim
    one = batching.narrow((args, kwargs), 0, 1, size, batch_dim)
    two = batching.on_batch(one, 1, batch_dim, lambda x, axis: batching.tile(x, axis, 2), marked=True)
    # A network that cannot answer one example leaves it open; what is wrong with the inputs shows in the pass itself.
    with suppress(Exception):
        first, second = (_lookups(model, tables, *inputs) for inputs in (one, two))
        for table in tables:
            if table.name in first:
                table.by_position = first[table.name] == second[table.name]
    found = [table.name for table in tables if table.by_position]
    if found:
        try:
            model.forward(*two[0], samples=1, generator=Generator(model.device).manual_seed(0), **two[1])
        except Exception as error:
            raise ValueError(
                f"The tables {', '.join(found)} are read by position, so that a draw of them is looked up for each "
                f"row; the network cannot use that ({error}). Leave them point estimates: exclude={found!r}."
            ) from error


def _lookups(model: BayesianModel, tables: list[GaussianEmbedding], args: Any, kwargs: Any) -> dict[str, list[Any]]:
    """Return the shapes of what is looked up in each table."""
    shapes: dict[str, list[Any]] = {}

    def note(table: Any, inputs: Any) -> None:
        shapes.setdefault(table.name, []).append(inputs[0].shape)

    hooks = [table.register_forward_pre_hook(note) for table in tables]
    try:
        model.forward(*args, samples=0, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return shapes


def _spread(value: Tensor) -> Tensor:
    return value * (1 + 0.3 * torch.rand_like(value)) if value.is_floating_point() else value  # seeds differ enough


def _alike(found: Tensor, expected: Tensor) -> bool:
    if found.shape != expected.shape:
        return False
    if not found.is_floating_point():
        return True  # such as labels, where a tie may fall either way
    scale = expected[expected.isfinite()].abs().max().item() if expected.isfinite().any() else 0.0
    return torch.allclose(found.double(), expected.double(), rtol=1e-2, atol=1e-3 * scale, equal_nan=True)
