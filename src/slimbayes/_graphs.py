"""Graphs: which inputs hold positions of rows, what belongs to nodes, edges and graphs, and the draws of outputs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from slimbayes.batching import BatchAxis, addresses_rows, axis_of, is_graph_data, leaves, map_leaves, tensors

#: What to do where nodes are put together, and those of one draw must be told from those of another.
WHICH_GRAPH = (
    "If nodes are pooled, or normalised together, say which graph each belongs to: sb.BatchAxis(batch, "
    "index=number_of_graphs), zeros for a single one; with PyTorch Geometric give a Batch."
)


def mark(args: Any, kwargs: Any, names: Sequence[str], batch_dim: int) -> tuple[Any, Any]:
    """Mark all inputs of a network if some of them address rows; leave the inputs of other networks as they are.

    An index is what the user has marked (``BatchAxis(..., index=...)``), an integer tensor of shape (2, edges) that the
    network calls an edge index (or, beside one, its ``batch``), and what PyTorch Geometric's ``Data`` says of itself.

    Args:
        args: The network's inputs.
        kwargs: Its keyword arguments.
        names: What its forward calls its positional arguments.
        batch_dim: The model's batch axis.
    """
    args = tuple(_named(_recognised, x, names[i] if i < len(names) else "") for i, x in enumerate(args))
    kwargs = {name: _named(_recognised, x, name) for name, x in kwargs.items()}
    if not addresses_rows((args, kwargs)):
        _refuse_sparse((args, kwargs))
        _refuse_loose_indices((args, kwargs), batch_dim)
        return args, kwargs
    nodes = _nodes(args, kwargs, names)
    args = tuple(_named(_graph_of_each, x, names[i] if i < len(names) else "") for i, x in enumerate(args))
    kwargs = {name: _named(_graph_of_each, x, name) for name, x in kwargs.items()}
    args, kwargs = map_leaves(lambda leaf: _counted(leaf, nodes), (args, kwargs))
    known = lengths((args, kwargs)) | {nodes}
    return map_leaves(lambda leaf: leaf if isinstance(leaf, BatchAxis) else _belonging(leaf, known), (args, kwargs))


def _named(f: Callable[[Any, str], Any], tree: Any, name: str) -> Any:
    """Apply ``f(leaf, name)``, where the name is the key of a dict, or that of the argument."""
    if type(tree) is dict:
        return {key: _named(f, value, str(key)) for key, value in tree.items()}
    if is_graph_data(tree):
        return _marked_data(tree) if f is _recognised else tree
    return map_leaves(lambda leaf: f(leaf, name), tree)


def _recognised(leaf: Any, name: str) -> Any:
    """Mark what is called an edge index."""
    edges = isinstance(leaf, Tensor) and _whole(leaf) and leaf.dim() == 2 and leaf.shape[0] == 2
    return BatchAxis(leaf, -1, True) if edges and "edge" in name and "index" in name else leaf


def _graph_of_each(leaf: Any, name: str) -> Any:
    """Mark what is called the batch: the graph of each node."""
    if name != "batch" or not isinstance(leaf, Tensor) or not _whole(leaf) or leaf.dim() != 1 or not len(leaf):
        return leaf
    return BatchAxis(leaf, 0, int(leaf.max()) + 1)


def _marked_data(data: Any) -> Any:
    """Mark the tensors of PyTorch Geometric's ``Data`` by the rules with which it makes batches of graphs."""

    def one(key: str, value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.dim():
            return value
        dim, step = data.__cat_dim__(key, value), data.__inc__(key, value)
        if isinstance(dim, tuple):
            raise ValueError(f"The graph's {key} is a sparse matrix, which has no draws. Give its edges as edge_index.")
        if key == "batch":
            step = getattr(data, "num_graphs", step)
        return BatchAxis(value, dim, step if isinstance(step, Tensor) or step else False)

    given = data.to_dict()
    marks = {id(value): one(key, value) for key, value in given.items() if key != "ptr" and isinstance(value, Tensor)}
    return map_leaves(lambda leaf: marks.get(id(leaf), leaf), data)


def _nodes(args: Any, kwargs: Any, names: Sequence[str]) -> int:
    """Return the number of rows that indices address: those of ``x``, or of the first input that is no index."""
    first = kwargs.get("x", args[names.index("x")] if "x" in names[: len(args)] else None)
    for tree in (first, args, kwargs):
        for leaf in leaves(tree):
            marked = isinstance(leaf, BatchAxis)
            if isinstance(leaf, Tensor) and leaf.dim():
                return leaf.shape[0]
            if marked and not leaf.is_index and leaf.axis is not None:
                return leaf.tensor.shape[leaf.axis]
    raise ValueError(
        "Expected an input that has a row for each node beside the positions of nodes, but got none. Pass the nodes' "
        "features to the network as its first input."
    )


def _counted(leaf: Any, nodes: int) -> Any:
    """Return an index with the number of rows that it addresses."""
    if not isinstance(leaf, BatchAxis) or not leaf.is_index:
        return leaf
    size = nodes if leaf.index is True else leaf.index
    if not torch.compiler.is_compiling() and isinstance(size, int) and leaf.tensor.numel():
        low, high = (int(x) for x in leaf.tensor.aminmax())
        if low < 0 or high >= size:
            raise ValueError(
                f"Expected an index of shape {tuple(leaf.tensor.shape)} to hold positions from 0 to {size - 1}, but "
                f"got {low} to {high}. Give the input whose rows it addresses first; if it addresses others, give "
                "their number: sb.BatchAxis(..., index=number)."
            )
    return replace(leaf, index=size)


def _belonging(leaf: Any, known: Iterable[int]) -> Any:
    """Mark a tensor as one of the nodes, edges or graphs, if it is as long as they are; else as shared by all draws."""
    if not isinstance(leaf, Tensor):
        raise ValueError("A PackedSequence cannot stand beside an index of rows. Give a padded tensor.")
    if leaf.dim() and leaf.shape[0] in known:
        return BatchAxis(leaf, 0)
    if leaf.dim() and _whole(leaf):
        raise _loose(leaf)
    return BatchAxis(leaf, None)


def _refuse_sparse(tree: Any) -> None:
    """Raise for a sparse matrix beside another input: it is one between examples, which draws would have to share."""
    for leaf in [*leaves(tree)][1:]:
        if isinstance(leaf, Tensor) and leaf.layout != torch.strided:
            raise ValueError(
                f"Expected inputs that have rows, but got a sparse matrix of shape {tuple(leaf.shape)}. Of a graph, "
                "give its edges: sb.BatchAxis(adjacency.to_sparse_coo().coalesce().indices(), index=True)."
            )


def advice_on_matrices(tree: Any, size: int) -> str:
    """Return what to do if an input that was taken for rows is a matrix between examples, such as a dense adjacency."""
    for leaf in [*leaves(tree)][1:]:
        if isinstance(leaf, Tensor) and leaf.shape == (size, size) and size > 1:
            return (
                f" An input of shape {tuple(leaf.shape)} was taken for the rows of {size} examples. If it is a matrix "
                "between them, as a graph's adjacency, give the graph as one example: model(x[None], "
                "sb.BatchAxis(adjacency, dim=None)); or its edges, sb.BatchAxis(edges, index=True)."
            )
    return ""


def _refuse_loose_indices(tree: Any, batch_dim: int) -> None:
    """Raise for whole numbers that do not carry the batch of the first input, and may be positions in it.

    Beside a table of features these are all that have one or two axes; beside other inputs, such as numbers of nodes or
    their histories, pairs of what may be positions.
    """
    found = list(leaves(tree))
    first = found[0] if found else None
    if not isinstance(first, Tensor) or not first.dim():
        return
    table = first.dim() == 2 and first.is_floating_point()
    for leaf in found[1:]:
        if not isinstance(leaf, Tensor) or not _whole(leaf) or axis_of(leaf, first.shape[0], batch_dim) is not None:
            continue
        if 1 <= leaf.dim() <= 2 if table else _pairs(leaf, first.shape[0]):
            raise _loose(leaf)


def _pairs(leaf: Tensor, rows: int) -> bool:
    """Tell whether a tensor may hold pairs of positions, ``(2, edges)``."""
    if leaf.dim() != 2 or leaf.shape[0] != 2 or not leaf.numel() or torch.compiler.is_compiling():
        return False
    low, high = leaf.aminmax()
    return bool((low >= 0) & (high < rows))


def _loose(leaf: Tensor) -> ValueError:
    return ValueError(
        f"Cannot tell what an integer input of shape {tuple(leaf.shape)} addresses. If its values are positions of "
        "rows of the first input, as a graph's edges, mark it: sb.BatchAxis(tensor, index=True); of n other things, "
        "index=n; if all rows share it as it is, sb.BatchAxis(tensor, dim=None)."
    )


def _whole(x: Tensor) -> bool:
    return not x.is_floating_point() and not x.is_complex() and x.dtype != torch.bool


def lengths(tree: Any) -> set[int]:
    """Return how many nodes, edges and graphs marked inputs have; nothing unless some of them address rows."""
    if not addresses_rows(tree):
        return set()
    marked = [leaf for leaf in leaves(tree) if isinstance(leaf, BatchAxis)]
    addressed = {leaf.index for leaf in marked if type(leaf.index) is int}
    return addressed | {leaf.tensor.shape[leaf.axis] for leaf in marked if leaf.axis is not None}


def check_fit(net: nn.Module, split: bool) -> None:
    """Raise if a layer keeps the edges of one pass for the next, whose draws may be more or fewer, or for a split."""
    if split:
        raise ValueError(
            "Expected argument `train_on` to be 'tile' for inputs that address rows, but got 'split': a graph is one "
            "whole, and cannot be dealt out."
        )
    for name, module in net.named_modules():
        if getattr(module, "cached", False) is True:
            raise ValueError(
                f"Layer {name} ({type(module).__name__}) was built with cached=True: it would keep the edges of the "
                "first pass, whatever draws the next one has. Build it with cached=False; its answers are the same."
            )


def split_draws(tree: Any, draws: int, known: set[int], alone: bool) -> Any:
    """Bring the draws of outputs that follow each other, a row for each node, edge or graph, to an axis.

    Args:
        tree: The network's outputs.
        draws: Number of draws.
        known: Numbers of nodes, edges and graphs.
        alone: Each draw ran alone, so that it may return one row for all.
    """
    possible = known | {1} if alone or draws == 1 else known

    def one(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and not leaf.dim():
            return leaf
        if not isinstance(leaf, Tensor) or leaf.shape[0] % draws or leaf.shape[0] // draws not in possible:
            raise ValueError(
                f"Expected the network's output to have a row for each node, edge or graph ({sorted(known)}) of each "
                f"of {draws} draws, but got shape {tuple(next(tensors(leaf)).shape)}. {WHICH_GRAPH}"
            )
        return leaf.unflatten(0, (draws, -1))

    return map_leaves(one, tree)
