"""Checks that no layer can make: whether the network keeps its rows in order, and which tables it reads by position."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor, nn

from slimbayes import batching
from slimbayes._chunks import Answered, evaluating
from slimbayes._graphs import WHICH_GRAPH
from slimbayes.conversion import copy_of
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
        raise ValueError(_out_of_order(*wrong))


def _out_of_order(position: int, member: int) -> str:
    return (
        f"Output {position} of the network is not what member {member} alone says: the network does not keep its rows "
        "in order. Something in its forward sorts, mixes or concatenates along the batch axis, addresses rows by "
        "numbers that it keeps itself (give a graph's edges as an input), or a converted layer sees something else "
        "than the batch there. Concatenate along another axis, call the layer twice instead, or exclude the layers in "
        "between."
    )


def check_graph(model: BayesianModel, args: Any, kwargs: Any) -> None:
    """Raise if a network mixes the nodes of all draws, as a norm or a pooling over all nodes does.

    Called in the first pass on a graph, also of one draw: training on one is not to end where predictions take more.
    """
    if model.independent or (model.members == 1 and next(model.stochastic(), None) is None):
        model.graphs_known = True  # each draw runs alone, or there is but one
    with _trying(model) as trial:
        if trial is None or model.graphs_known:
            return
        wrong = None
        with suppress(Exception):  # what is wrong with the inputs shows in the pass itself
            wrong = _mixed_up(trial, args, kwargs)
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
    with evaluating(model), torch.no_grad(), without_fused_paths():
        samples = 2 if model.members == 1 else 1  # one draw alone has no rows that another could get
        generator = Generator(model.device).manual_seed(0)  # torch's own goes on as if nothing had been drawn
        draw = {name: _spread(value, generator) for name, value in model.draw(samples, generator).items()}
        outputs = _outputs(model, args, kwargs, draw=draw)
        for row in {0, model.members * samples - 1}:
            member = row // samples
            alone = _alone(model, args, kwargs, samples, draw, row)
            expected = alone()
            for position, (found, own) in enumerate(zip(outputs, expected, strict=True)):
                if found.dim() and not _alike(found[row], own):
                    if not all(map(_alike, alone(), expected)):
                        raise ValueError(
                            "The network gives other outputs for the same inputs when it is called again, also in "
                            "evaluation mode, so that draws cannot be compared with members: it draws random numbers "
                            "of its own. For the check, switch that off (F.dropout wants training=self.training)."
                        )
                    return position, member
    return None


def _alone(
    model: BayesianModel, args: Any, kwargs: Any, samples: int, draw: dict[str, Tensor], row: int
) -> Callable[[], list[Tensor]]:
    """Return what gives the outputs of one draw without the others: those of a plain network where it can be folded."""
    if all(value.is_floating_point() for value in draw.values()):
        net = model.member(row // samples, sample=row % samples, draw=draw)
        plain_args, plain_kwargs = batching.unmarked((args, kwargs))
        return lambda: _outputs(net, plain_args, plain_kwargs)
    one = {name: value[row : row + 1] for name, value in draw.items()}
    return lambda: [x[0] if x.dim() else x for x in _outputs(model, args, kwargs, draw=one)]


def _outputs(net: nn.Module, args: Any, kwargs: Any, **options: Any) -> list[Tensor]:
    """Return the tensors that a network returns for inputs that stay as they are."""
    args, kwargs = _own((args, kwargs))
    return list(batching.tensors(net(*args, **options, **kwargs)))


def _own(inputs: Any) -> Any:
    """Copy whatever of the inputs a network may change, such as a cache of keys and values; share the tensors."""
    return copy.deepcopy(inputs, {id(x): x for x in batching.tensors(inputs)})


@contextmanager
def _trying(model: BayesianModel) -> Iterator[BayesianModel | None]:
    """Give a copy of the model for passes that try the network, in evaluation mode.

    None within such a pass, and where the network holds something that cannot be copied.

    The copy shares the model's weights; what the network keeps or counts from pass to pass stays as it was, and its
    hooks do not hear it. Other threads wait.
    """
    with model.trial:
        if model.passes.looking is not None:
            yield None
            return
        model.passes.looking = {}  # the network may call the model, which is not to try it in turn
        try:
            trial: BayesianModel | None = None
            with suppress(Exception):
                trial = _to_try(model)
            with torch.no_grad():
                yield trial
        finally:
            model.passes.looking = None


def _to_try(model: BayesianModel) -> BayesianModel:
    trial = copy_of(model, keep=model.parameters()).eval()
    # Accelerate puts one in its place, whose autocast would be entered twice, and then never be left.
    vars(trial).pop("forward", None)
    for module in trial.modules():
        module._forward_hooks.clear()  # torch has no public way to copy a module without its hooks
        module._forward_pre_hooks.clear()
    trial._checked = trial.rows_known = trial.graphs_known = True
    return trial


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
    if all(isinstance(layer, Networks) for layer in model.layers()):
        model.rows_known = True  # they do not deal out rows
    with _trying(model) as trial:
        if trial is None or model.rows_known:
            return
        found = _look_at(trial, args, kwargs, size)
        if found is None:  # it is left open; a network that failed is asked again
            _warn_if_mixed_up(trial, args, kwargs)
            return
        for layer in model.layers():
            if layer.name in found:
                layer.by_position = True
        model.rows_known = True


def _warn_if_mixed_up(trial: BayesianModel, args: Any, kwargs: Any) -> None:
    """Warn if a network that cannot answer one example, such as one that keeps a graph, passes rows to other draws."""
    wrong = None
    with suppress(Exception):  # what is wrong with the inputs shows in the pass itself
        wrong = _mixed_up(trial, args, kwargs)
    if wrong is not None:
        warnings.warn(_out_of_order(*wrong), stacklevel=6)


def _look_at(trial: BayesianModel, args: Any, kwargs: Any, size: int) -> list[str] | None:
    """Return the names of tables that are read by position; None where the network cannot be tried."""
    batch_dim = trial.sampling.batch_dim
    try:
        one = batching.narrow((args, kwargs), 0, 1, size, batch_dim)
        two = batching.on_batch(one, 1, batch_dim, lambda x, axis: batching.tile(x, axis, 2), marked=True)
    except Exception:  # such as a dataclass that takes tensors alone
        return None
    with trial.net.register_forward_hook(_stop):  # what becomes of its outputs is of no interest
        return _by_position(trial, one, two)


def _by_position(trial: BayesianModel, one: Any, two: Any) -> list[str] | None:
    """Return the names of tables that are read by position, from passes on one example and the same one twice."""
    tables = {layer.name: layer for layer in trial.layers() if isinstance(layer, GaussianEmbedding)}
    first, second, error = _seen(trial, one, two)
    if error is not None and not isinstance(error, NoRowsError):
        return None  # the network cannot answer one example, or what is wrong with the inputs shows in the pass itself
    before, found = error, list[str]()
    while new := [name for name in _same(first, second) if name in tables and name not in found]:
        found += new
        for name in new:
            tables[name].by_position = True  # what it answers has rows from now on, and so have the layers after it
        first, second, error = _seen(trial, one, two)
        if error is not None and not (before is not None and isinstance(error, NoRowsError)):
            raise ValueError(
                f"The tables {', '.join(found)} are read by position, so that a draw of them is looked up for each "
                f"row; the network cannot use that ({error}). Leave them point estimates: exclude={found!r}."
            ) from error
    if error is not None:
        raise error
    if without := [(name, rows) for name, (rows, *_) in _same(first, second).items() if name not in found]:
        raise NoRowsError(
            f"Layer {without[0][0]} got {without[0][1]} rows for one example, and as many for two: its input does "
            "not carry the batch where the layer looks for it, and its draws cannot be dealt out. Set the layer's "
            f"`row_dim`, convert with another `batch_dim`, or leave it: exclude={[name for name, _ in without]!r}."
        )
    return found


def _seen(model: BayesianModel, *several: Any) -> tuple[dict[str, list[Any]], dict[str, list[Any]], Exception | None]:
    """Return what the layers see of rows with the one inputs and the others, by name, and the error that ended it."""
    found: list[dict[str, list[Any]]] = [{}, {}]
    for seen, (args, kwargs) in zip(found, several, strict=True):
        model.passes.looking = seen
        try:
            _outputs(model, args, kwargs, samples=0)
        except Answered:
            continue
        except Exception as error:
            return found[0], found[1], error
    return found[0], found[1], None


def _stop(network: nn.Module, inputs: Any, output: Any) -> None:
    raise Answered


def _same(first: dict[str, list[Any]], second: dict[str, list[Any]]) -> dict[str, Any]:
    """Return, by name, what one of the calls of a layer saw in both passes alike, as far as both came.

    No rows at all say nothing: the network may pick some, such as masked tokens, of which the example has none.
    """
    pairs = {name: zip(calls, second.get(name, []), strict=False) for name, calls in first.items()}
    alike = {name: [one for one, two in calls if one == two and 0 not in one] for name, calls in pairs.items()}
    return {name: calls[0] for name, calls in alike.items() if calls}


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
