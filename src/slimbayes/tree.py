"""Nested inputs and outputs: what a network takes and gives, and its batch axis.

Tensors may stand in tuples, lists, dicts, named tuples and dataclasses (such as the outputs of Hugging
Face models); packed sequences are unpacked and packed again; anything else is passed through.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

__all__ = ["BatchAxis", "batch_size", "map_leaves", "on_batch", "tensors"]


@dataclass(frozen=True)
class BatchAxis:
    """Says where the batch of one input is, where that is not the model's ``batch_dim``.

    Args:
        tensor: The input.
        dim: Its batch axis; None if it has none and all rows share it (an attention mask, say).

    Example:
        >>> mask = BatchAxis(torch.ones(4, 4), dim=None)
    """

    tensor: Tensor
    dim: int | None


def map_leaves(f: Callable[[Any], Any], tree: Any) -> Any:
    """Apply ``f`` to each tensor, packed sequence and ``BatchAxis`` of a nest.

    Example:
        >>> map_leaves(lambda x: x + 1, {"a": (torch.tensor(1), None)})
        {'a': (tensor(2), None)}
    """
    if isinstance(tree, (Tensor, PackedSequence, BatchAxis)):
        return f(tree)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = [field.name for field in dataclasses.fields(tree) if field.init]
        return dataclasses.replace(tree, **{name: map_leaves(f, getattr(tree, name)) for name in fields})
    if isinstance(tree, Mapping):
        mapped = {key: map_leaves(f, value) for key, value in tree.items()}
        return mapped if type(tree) is dict else type(tree)(mapped)  # type: ignore[call-arg]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_leaves(f, value) for value in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(map_leaves(f, value) for value in tree)
    return tree


def tensors(tree: Any) -> Iterator[Tensor]:
    """Yield the tensors of a nest."""
    found: list[Tensor] = []

    def note(leaf: Any) -> Any:
        if isinstance(leaf, PackedSequence):
            found.append(leaf.data)
        else:
            found.append(leaf.tensor if isinstance(leaf, BatchAxis) else leaf)
        return leaf

    map_leaves(note, tree)
    yield from found


def axis_of(leaf: Any, size: int, batch_dim: int) -> int | None:
    """Return the axis of a tensor that holds a batch of ``size``: the declared one, else the first."""
    if leaf.dim() > batch_dim and leaf.shape[batch_dim] == size:
        return batch_dim
    return 0 if leaf.dim() and leaf.shape[0] == size else None


def batch_size(tree: Any, batch_dim: int) -> int:
    """Return the batch size: that of the first input."""
    sizes: list[int] = []

    def note(leaf: Any) -> Any:
        if isinstance(leaf, PackedSequence):
            sizes.append(int(leaf.batch_sizes[0]))
        elif isinstance(leaf, BatchAxis):
            if leaf.dim is not None:
                sizes.append(leaf.tensor.shape[leaf.dim])
        elif leaf.dim() == 0:
            raise ValueError(
                f"Expected every tensor in the input to have a batch axis, but got a tensor of rank 0 ({leaf!r}). "
                "Give a batch, even of one: x.reshape(1, ...)."
            )
        else:
            sizes.append(leaf.shape[batch_dim] if leaf.dim() > batch_dim else leaf.shape[0])
        return leaf

    map_leaves(note, tree)
    if not sizes:
        raise ValueError("Expected at least one tensor in the input, but got none. Pass the batch to the model.")
    return sizes[0]


def on_batch(tree: Any, size: int, batch_dim: int, change: Callable[[Tensor, int], Tensor]) -> Any:
    """Apply ``change(tensor, axis)`` to each input that carries the batch; leave the others alone.

    Args:
        tree: Inputs of a network.
        size: The batch size; a tensor without an axis of this size is shared by all rows.
        batch_dim: The model's batch axis.
        change: What to do, such as repeating along the axis.
    """

    def one(leaf: Any) -> Any:
        if isinstance(leaf, PackedSequence):
            padded, lengths = pad_packed_sequence(leaf, batch_first=True)
            return pack_padded_sequence(change(padded, 0), change(lengths, 0), batch_first=True, enforce_sorted=False)
        if isinstance(leaf, BatchAxis):
            return leaf.tensor if leaf.dim is None else change(leaf.tensor, leaf.dim)
        axis = axis_of(leaf, size, batch_dim)
        return leaf if axis is None else change(leaf, axis)

    return map_leaves(one, tree)


def output_axis(leaf: Any, rows: int, batch_dim: int) -> int:
    """Return the axis of an output that holds the model's rows, or raise."""
    if isinstance(leaf, PackedSequence):
        raise ValueError(
            "The network returned a PackedSequence, which has no room for the draws' axis. "
            "Let it return a padded tensor (torch.nn.utils.rnn.pad_packed_sequence)."
        )
    if leaf.dim() == 2 and batch_dim == 1 and leaf.shape[0] == leaf.shape[1] == rows:
        raise ValueError(
            f"Cannot tell the batch axis of an output of shape {tuple(leaf.shape)}: both have the {rows} rows. "
            "Use another batch size or number of samples."
        )
    axis = axis_of(leaf, rows, batch_dim)
    if axis is None:
        raise ValueError(
            f"Expected the network's output to have its {rows} rows on axis {batch_dim}, but got shape "
            f"{tuple(leaf.shape)}. Convert with the right `batch_dim`, or let the network return batched outputs."
        )
    return axis


def split_draws(tree: Any, draws: int, rows: int, batch_dim: int) -> Any:
    """Bring the draws, folded into the rows, to the first axis of each output."""

    def one(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.dim() == 0:
            return leaf  # such as an auxiliary loss: it has no rows to split
        axis = output_axis(leaf, rows, batch_dim)
        return leaf.unflatten(axis, (draws, rows // draws)).movedim(axis, 0)

    return map_leaves(one, tree)


def deal(x: Tensor, axis: int, members: int) -> Tensor:
    """Deal a batch out to members in turn: example b goes to member b mod K; the last hand is filled up.

    Example:
        >>> deal(torch.arange(5), 0, 2)
        tensor([0, 2, 4, 1, 3, 0])
    """
    size = x.shape[axis]
    hands = -(-size // members)
    order = torch.arange(hands * members, device=x.device).view(hands, members).T.flatten() % size
    return x.index_select(axis, order)


def collect(tree: Any, members: int, samples: int, size: int, batch_dim: int) -> Any:
    """Undo ``deal`` in the outputs: ``(samples, size, *)`` in the order of the batch."""
    hands = -(-size // members)
    rows = members * samples * hands

    def one(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.dim() == 0:
            return leaf
        axis = output_axis(leaf, rows, batch_dim)
        dealt = leaf.movedim(axis, 0).view(members, samples, hands, *leaf.movedim(axis, 0).shape[1:])
        ordered = dealt.permute(1, 2, 0, *range(3, dealt.dim())).flatten(1, 2)[:, :size]
        return ordered.movedim(1, axis + 1)

    return map_leaves(one, tree)


def output_tensor(outputs: Any) -> Tensor:
    """Return the tensor that a likelihood reads: the outputs themselves, or their ``logits``."""
    if isinstance(outputs, Tensor):
        return outputs
    logits = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
    if not isinstance(logits, Tensor):
        raise ValueError(
            f"The network returns a {type(outputs).__name__} without `logits`; which part is the prediction cannot "
            "be told. Pick it yourself, as in elbo(model(x)[0], y) and sb.Prediction(p.draws[0], p.likelihood, "
            "p.members)."
        )
    return logits
