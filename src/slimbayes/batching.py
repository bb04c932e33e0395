"""Nested inputs and outputs: what a network takes and gives, and its batch axis.

Tensors may stand in tuples, lists, dicts, named tuples and dataclasses (such as the outputs of Hugging
Face models), and in PyTorch Geometric's ``Data``; packed sequences are unpacked and packed again; anything else is
passed through.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from types import EllipsisType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

__all__ = ["BatchAxis", "batch_size", "map_leaves", "narrow", "on_batch", "tensors"]


@dataclass(frozen=True)
class BatchAxis:
    """Says where the batch of one input is, where that is not the model's ``batch_dim``; or that it addresses rows.

    Args:
        tensor: The input.
        dim: Its batch axis (negative counts from the end); None if it has none and all rows share it
            (an attention mask, say). It may hold several entries for each example, as an attention mask of shape
            (batch * heads, target, source) does. Of an index it is the axis along which its entries stand: the last one
            if not given.
        index: True if the tensor's values are positions of rows of the network's first input, as a graph's
            ``edge_index`` of shape (2, edges). A number n if they are positions among n others: of a batch of n graphs,
            the graph of each node. Each draw gets positions of its own rows. The batch of such a pass is one whole.

    Example:
        >>> mask = BatchAxis(torch.ones(4, 4), dim=None)
        >>> edges = BatchAxis(torch.tensor([[0, 1], [1, 2]]), index=True)
        >>> graph_of_each_node = BatchAxis(torch.tensor([0, 0, 1]), index=2)
    """

    tensor: Tensor
    dim: int | EllipsisType | None = ...
    index: bool | int | Tensor = False

    def __post_init__(self) -> None:
        if not isinstance(self.tensor, Tensor):
            raise TypeError(
                f"Expected argument `tensor` of BatchAxis to be a tensor, but got {type(self.tensor).__name__}. Inputs "
                "that are none are given as they are."
            )
        rank = self.tensor.dim()
        if self.dim is ...:
            if not self.is_index:
                raise ValueError(
                    "Expected argument `dim` of BatchAxis, but got none. Give None if rows share the tensor."
                )
            object.__setattr__(self, "dim", -1)
        if self.is_index and (self.dim is None or self.tensor.is_floating_point()):
            raise ValueError(
                f"Expected an index of BatchAxis to be whole numbers along an axis, but got {self.tensor.dtype} and "
                f"dim={self.dim}. Leave `index` out."
            )
        if isinstance(self.dim, int) and not -rank <= self.dim < rank:
            raise ValueError(
                f"Expected argument `dim` of BatchAxis to be an axis of a tensor of shape "
                f"{tuple(self.tensor.shape)}, but got {self.dim}. Give None if all rows share the tensor."
            )

    @property
    def axis(self) -> int | None:
        """``dim``, counted from the front."""
        return self.dim % self.tensor.dim() if isinstance(self.dim, int) else None

    @property
    def is_index(self) -> bool:
        """Whether the values are positions."""
        return self.index is not False

    def moved_to(self, tiled: Tensor) -> Tensor:
        """Return copies of an index, one after another on its axis, each with the positions of that copy's own rows."""
        assert self.axis is not None
        entries = self.tensor.shape[self.axis]
        copies = torch.arange(tiled.shape[self.axis] // max(entries, 1), device=tiled.device)
        shape = [1] * tiled.dim()
        shape[self.axis] = -1
        return tiled + copies.repeat_interleave(entries).view(shape) * self.index


def is_graph_data(tree: Any) -> bool:
    """Tell whether something is PyTorch Geometric's ``Data`` or a ``Batch`` of them, by what such classes declare."""
    kind = type(tree)
    return hasattr(kind, "__cat_dim__") and hasattr(kind, "__inc__") and not hasattr(kind, "node_types")


def map_leaves(f: Callable[[Any], Any], tree: Any) -> Any:
    """Apply ``f`` to each tensor, packed sequence and ``BatchAxis`` of a nest.

    Example:
        >>> map_leaves(lambda x: x + 1, {"a": (torch.tensor(1), None)})
        {'a': (tensor(2), None)}
    """
    if isinstance(tree, (Tensor, PackedSequence, BatchAxis)):
        return f(tree)
    if type(tree) is tuple:  # the common case, before checks that take longer
        return tuple([map_leaves(f, value) for value in tree])
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = [field.name for field in dataclasses.fields(tree) if field.init]
        return dataclasses.replace(tree, **{name: map_leaves(f, getattr(tree, name)) for name in fields})
    if isinstance(tree, Mapping):
        mapped = {key: map_leaves(f, value) for key, value in tree.items()}
        if type(tree) is dict:
            return mapped  # the common case, and one that torch.compile can follow
        if not isinstance(tree, MutableMapping):
            return type(tree)(mapped)  # type: ignore[call-arg]
        changed = copy.copy(tree)  # not every class of mapping can be built from a dict alone
        changed.update(mapped)
        return changed
    if is_graph_data(tree):
        return _mapped_data(f, tree)
    if isinstance(tree, tuple) and hasattr(tree, "_make"):
        return tree._make(map_leaves(f, value) for value in tree)
    if isinstance(tree, (tuple, list)):
        return type(tree)([map_leaves(f, value) for value in tree])
    return tree


def _mapped_data(f: Callable[[Any], Any], data: Any) -> Any:
    """Apply ``f`` to the tensors of a graph; its numbers of nodes and graphs follow from them."""
    changed = copy.copy(data)
    for key, value in data.to_dict().items():
        if key == "num_nodes" and "x" in data:
            del changed.num_nodes
        elif key != "ptr" and not key.startswith("_"):
            changed[key] = map_leaves(f, value)
    if hasattr(changed, "_num_graphs"):
        del changed._num_graphs
    if "ptr" in data and isinstance(changed.batch, Tensor):
        changed.ptr = F.pad(changed.batch.bincount().cumsum(0), (1, 0))
    return changed


def leaves(tree: Any) -> Iterator[Any]:
    """Yield each tensor, packed sequence and ``BatchAxis`` of a nest."""
    if isinstance(tree, (Tensor, PackedSequence, BatchAxis)):
        yield tree
    elif type(tree) is tuple:
        for value in tree:
            yield from leaves(value)
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        for field in dataclasses.fields(tree):
            if field.init:
                yield from leaves(getattr(tree, field.name))
    elif isinstance(tree, (Mapping, tuple, list)):
        for value in tree.values() if isinstance(tree, Mapping) else tree:
            yield from leaves(value)
    elif is_graph_data(tree):
        for key, value in tree.to_dict().items():
            if key != "ptr":
                yield from leaves(value)


def tensors(tree: Any) -> Iterator[Tensor]:
    """Yield the tensors of a nest."""
    for leaf in leaves(tree):
        if isinstance(leaf, PackedSequence):
            yield leaf.data
        else:
            yield leaf.tensor if isinstance(leaf, BatchAxis) else leaf


def axis_of(leaf: Tensor, size: int, batch_dim: int) -> int | None:
    """Return the axis of a tensor that holds a batch of ``size``: the declared one, else the first."""
    if leaf.dim() > batch_dim and leaf.shape[batch_dim] == size:
        return batch_dim
    return 0 if leaf.dim() and leaf.shape[0] == size else None


def batch_size(tree: Any, batch_dim: int) -> int:
    """Return the batch size: that of the first input that has an axis for it; 1 if values address rows."""
    rank_0: Tensor | None = None
    if addresses_rows(tree):
        return 1
    for leaf in leaves(tree):
        if isinstance(leaf, PackedSequence):
            return int(leaf.batch_sizes[0])
        if isinstance(leaf, BatchAxis):
            if leaf.axis is not None:
                return leaf.tensor.shape[leaf.axis]
        elif leaf.dim() == 0:
            rank_0 = leaf
        else:
            return leaf.shape[batch_dim] if leaf.dim() > batch_dim else leaf.shape[0]
    if rank_0 is not None:
        raise ValueError(
            f"Expected the input to have a batch axis, but got a tensor of rank 0 ({rank_0.item()!r}). "
            "Give a batch, even of one: x.reshape(1, ...)."
        )
    raise ValueError(
        f"Expected at least one tensor with a batch in the input, but got {_kinds(tree)}. Pass the batch to the model "
        "as tensors (torch.as_tensor)."
    )


def addresses_rows(tree: Any) -> bool:
    """Tell whether inputs are marked as positions of rows: the batch is then one whole, such as a graph."""
    return any(isinstance(leaf, BatchAxis) and leaf.is_index for leaf in leaves(tree))


def _kinds(tree: Any) -> str:
    args, kwargs = tree if isinstance(tree, tuple) and len(tree) == 2 else ((tree,), {})
    return ", ".join(type(value).__name__ for value in (*args, *kwargs.values())) or "nothing"


def on_batch(
    tree: Any, size: int, batch_dim: int, change: Callable[[Tensor, int], Tensor], marked: bool = False
) -> Any:
    """Apply ``change(tensor, axis)`` to each input that carries the batch; leave the others alone.

    Args:
        tree: Inputs of a network.
        size: The batch size; a tensor without an axis of this size is shared by all rows.
        batch_dim: The model's batch axis.
        change: What to do, such as repeating along the axis.
        marked: Return tensors as ``BatchAxis``, for a network that takes its batch apart again.
    """

    def one(leaf: Any) -> Any:
        if isinstance(leaf, PackedSequence):
            padded, lengths = pad_packed_sequence(leaf, batch_first=True)
            return pack_padded_sequence(change(padded, 0), change(lengths, 0), batch_first=True, enforce_sorted=False)
        tensor, axis = _placed(leaf, size, batch_dim)
        changed = tensor if axis is None else _by_example(tensor, axis, size, change)
        if isinstance(leaf, BatchAxis) and leaf.is_index:
            changed = leaf.moved_to(changed)
            return BatchAxis(changed, axis, leaf.index) if marked else changed
        return BatchAxis(changed, axis) if marked else changed

    return map_leaves(one, tree)


def unmarked(tree: Any) -> Any:
    """Return a nest with tensors in the place of each ``BatchAxis``."""
    return map_leaves(lambda leaf: leaf.tensor if isinstance(leaf, BatchAxis) else leaf, tree)


def _by_example(x: Tensor, axis: int, size: int, change: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Apply ``change`` to examples, which may be several entries each, such as an attention mask for each head."""
    if x.shape[axis] == size:
        return change(x, axis)
    return change(x.unflatten(axis, (size, -1)), axis).flatten(axis, axis + 1)


def _placed(leaf: Tensor | BatchAxis, size: int, batch_dim: int) -> tuple[Tensor, int | None]:
    """Return a tensor and its batch axis, declared or found by its size."""
    if not isinstance(leaf, BatchAxis):
        return leaf, axis_of(leaf, size, batch_dim)
    if leaf.axis is not None and leaf.tensor.shape[leaf.axis] % size:
        raise ValueError(
            f"Expected the batch of {size} on axis {leaf.dim} of an input, as its BatchAxis says, but got shape "
            f"{tuple(leaf.tensor.shape)}. Check its `dim`, and that all inputs have the same batch size."
        )
    return leaf.tensor, leaf.axis


def narrow(tree: Any, begin: int, end: int, size: int, batch_dim: int) -> Any:
    """Return some examples of a batch.

    Each tensor comes as a ``BatchAxis``: one without a batch may happen to have an axis of the part's size.
    """

    def one(leaf: Any) -> Any:
        if isinstance(leaf, PackedSequence):
            return on_batch(leaf, size, batch_dim, lambda x, axis: x.narrow(axis, begin, end - begin))
        tensor, axis = _placed(leaf, size, batch_dim)
        if axis is not None:
            tensor = _by_example(tensor, axis, size, lambda x, axis: x.narrow(axis, begin, end - begin))
        if isinstance(leaf, BatchAxis) and leaf.is_index:
            return BatchAxis(tensor - begin * leaf.index, axis, leaf.index)
        return BatchAxis(tensor, axis)

    return map_leaves(one, tree)


def output_axis(leaf: Any, rows: int, batch_dim: int, inputs: Any = None) -> int:
    """Return the axis of an output that holds the model's rows, or raise.

    Args:
        leaf: The output.
        rows: Number of rows.
        batch_dim: The model's batch axis.
        inputs: What the network was given, marked or not. A sequence-first network may return logits
            ``(rows, classes)`` or steps ``(time, rows)``; where both sizes are ``rows``, no input of that length means
            the former.
    """
    if isinstance(leaf, PackedSequence):
        raise ValueError(
            "The network returned a PackedSequence, which has no room for the draws' axis. "
            "Let it return a padded tensor (torch.nn.utils.rnn.pad_packed_sequence)."
        )
    if inputs is not None and addresses_rows(inputs):
        return 0
    if batch_dim == 1 and leaf.shape == (rows, rows):
        if inputs is not None and not any(x.shape[:2] == (rows, rows) for x in tensors(inputs)):
            return 0
        raise ValueError(
            f"Cannot tell the batch axis of an output of shape {tuple(leaf.shape)}: both have the {rows} rows. "
            "Use another batch size or number of samples."
        )
    axis = axis_of(leaf, rows, batch_dim)
    if axis is None:
        state = leaf.dim() > 2 and leaf.shape[1] == rows
        remedy = "Return recurrent states batch first, h.transpose(0, 1)" if state else "Return batched outputs"
        raise ValueError(
            f"Expected the network's output to have its {rows} rows on axis {batch_dim}, but got shape "
            f"{tuple(leaf.shape)}. {remedy}, or convert with the right `batch_dim`."
        )
    return axis


def output_axes(tree: Any, rows: int, batch_dim: int, inputs: Any = None) -> list[int | None]:
    """Return the axis of each output that holds the rows, None for a number without axes; see ``output_axis``."""
    return [
        None if isinstance(leaf, Tensor) and not leaf.dim() else output_axis(leaf, rows, batch_dim, inputs)
        for leaf in leaves(tree)
    ]


def split_draws(tree: Any, draws: int, rows: int, batch_dim: int, inputs: Any = None) -> Any:
    """Bring the draws, folded into the rows, to the first axis of each output; ``inputs`` as in ``output_axis``."""

    def one(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.dim() == 0:
            return leaf  # such as an auxiliary loss: it has no rows to split
        axis = output_axis(leaf, rows, batch_dim, inputs)
        if draws == 1:
            return leaf.unsqueeze(0)
        return leaf.unflatten(axis, (draws, rows // draws)).movedim(axis, 0)

    return map_leaves(one, tree)


def tile(x: Tensor, axis: int, copies: int) -> Tensor:
    """Repeat a batch as a whole: member-major rows.

    Example:
        >>> tile(torch.tensor([[1, 2], [3, 4]]), 0, 2)
        tensor([[1, 2],
                [3, 4],
                [1, 2],
                [3, 4]])
    """
    return torch.cat([x] * copies, axis)  # unlike `repeat`, it leaves channels where they lie


def _as_it_lies(x: Tensor, axis: int, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Return ``change(x)`` in the memory format of x: torch itself would not keep images in channels-last."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if axis or last is None or x.is_contiguous() or not x.is_contiguous(memory_format=last):
        return change(x)
    return change(x.movedim(1, -1)).movedim(-1, 1)


def deal(x: Tensor, axis: int, members: int, first: int | Tensor = 0) -> Tensor:
    """Split a batch among the members: example b goes to member (first + b) mod K.

    All members get equally many rows; where the batch has too few, its first examples come once more.

    Example:
        >>> deal(torch.arange(5), 0, 2), deal(torch.arange(5), 0, 2, first=1)
        (tensor([0, 2, 4, 1, 3, 0]), tensor([0, 1, 3, 0, 2, 4]))
    """
    turns = _turns(_examples, first, x.shape[axis], members, device=x.device)
    return _as_it_lies(x, axis, lambda x: x.index_select(axis, turns))


def _turns(order: Callable[..., Tensor], first: int | Tensor, *sizes: int, device: torch.device) -> Tensor:
    """Return ``order(first, ...)``; where ``first`` is a plain number, results are kept and used again."""
    if isinstance(first, int):
        return _kept_turns(order, first, *sizes, device=device)
    return order(first, *sizes, device=device)


@lru_cache(256)
def _kept_turns(order: Callable[..., Tensor], *first_and_sizes: int, device: torch.device) -> Tensor:
    # Made in inference mode, a tensor could not be used in training afterwards.
    with torch.inference_mode(False):
        return order(*first_and_sizes, device=device)


def _examples(first: int | Tensor, size: int, members: int, device: torch.device) -> Tensor:
    """Return the examples by member: those of the first, those of the second, and so on."""
    slots = -(-size // members) * members
    return ((torch.arange(slots, device=device) - first) % slots % size).view(-1, members).T.flatten()


def _rows(first: int | Tensor, size: int, members: int, samples: int, device: torch.device) -> Tensor:
    """Return the row of each example in the outputs of a split batch, for each sample: ``(samples * size,)``."""
    hands = -(-size // members)
    turn = (torch.arange(size, device=device) + first) % (hands * members)
    row = turn % members * (samples * hands) + turn // members
    return (torch.arange(0, samples * hands, hands, device=device).unsqueeze(1) + row).flatten()


def collect(
    tree: Any, members: int, samples: int, size: int, batch_dim: int, first: int | Tensor = 0, inputs: Any = None
) -> Any:
    """Put the outputs of a batch that ``deal`` split into its order: ``(samples, size, *)``."""
    hands = -(-size // members)

    def one(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.dim() == 0:
            return leaf
        axis = output_axis(leaf, members * samples * hands, batch_dim, inputs)
        rows = _turns(_rows, first, size, members, samples, device=leaf.device)
        return leaf.index_select(axis, rows).unflatten(axis, (samples, size)).movedim(axis, 0)

    return map_leaves(one, tree)


def output_tensor(outputs: Any) -> Tensor:
    """Return the tensor that a likelihood reads: the outputs themselves, or their ``logits``; not in half precision."""
    logits = outputs
    if not isinstance(outputs, Tensor):
        logits = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
    if not isinstance(logits, Tensor):
        parts = list(outputs) if isinstance(outputs, Mapping) else []
        key = repr(parts[0]) if parts else "0"
        raise ValueError(
            f"The network returns a {type(outputs).__name__} {f'of {parts} ' if parts else ''}without `logits`; which "
            f"part is the prediction cannot be told. Pick it yourself, as in elbo(model(x)[{key}], y) and "
            f"sb.Prediction(p.draws[{key}], p.likelihood, p.members)."
        )
    # Half precision has three digits: too few for a log-likelihood, or for the difference of two entropies.
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def batch_first(outputs: Tensor, targets: Any, batch_dim: int) -> tuple[Tensor, Any]:
    """Move the batch axis of sequence-first outputs ``(draws, time, batch, *)`` and targets ``(time, batch, *)`` first.

    In outputs with fewer axes, such as the logits of whole sequences, it comes first already.
    """
    if batch_dim == 0 or outputs.dim() <= batch_dim + 2:
        return outputs, targets
    return outputs.movedim(batch_dim + 1, 1), targets.movedim(batch_dim, 0) if targets.dim() > batch_dim else targets
