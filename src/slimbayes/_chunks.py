"""Prediction in chunks of examples and samples, so that memory has a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor, nn

from slimbayes import batching
from slimbayes._checks import check_count
from slimbayes.layers.base import every_module
from slimbayes.sampling import check_sampling

if TYPE_CHECKING:
    from slimbayes.model import BayesianModel

__all__ = ["MAX_MEMORY", "predict_draws"]

#: Bytes of activations that a prediction may hold at once, unless told otherwise.
MAX_MEMORY = 2**30


def predict_draws(
    model: BayesianModel,
    args: Any,
    kwargs: Any,
    samples: int,
    batch_size: int | None,
    noise: str | None,
    generator: Generator | None,
    max_memory: int,
) -> Any:
    """Return the model's outputs on all examples, draws first; see ``BayesianModel.predict``."""
    if noise is None:
        # A weight that all draws of a pass share saves time in training; here draws are to differ.
        noise = "shared" if model.options.get("sample_per") == "batch" else model.options["noise"]
    check_sampling(samples, noise)
    noise = "shared" if model.coherent else noise
    check_count("max_memory", max_memory, 1)
    if batch_size is not None:
        check_count("batch_size", batch_size, 1)
    _check_no_nan((args, kwargs))
    members, size = model.members, batching.batch_size((args, kwargs), model.sampling.batch_dim)
    if size == 0:
        raise ValueError("Expected a batch of at least one example, but got an empty one.")
    with evaluating(model), torch.no_grad():
        each = max(samples, 1)
        if batch_size is None:
            rows = max_memory // _bytes_per_row(model, args, kwargs, size)
            each = min(each, max(1, rows // members))
            batch_size = max(1, rows // (members * each))
        shared = noise == "shared" and samples > 0 and next(model.stochastic(), None) is not None
        if shared and each > 1:  # the draws of Gaussian weights are whole networks
            each = min(each, max(1, max_memory // _bytes_per_sample(model)))
        by_samples = []
        for start in range(0, max(samples, 1), each):
            count = min(each, samples - start)  # 0 if samples is
            # One shared draw serves all chunks of examples, or the function would not be one function.
            draw = model.draw(count, generator) if shared else None
            how = {"samples": count, "noise": noise, "generator": generator, "draw": draw}
            by_samples.append(_in_chunks(model, args, kwargs, size, batch_size, how))
        return _interleave(by_samples, members)


def _bytes_per_sample(model: BayesianModel) -> int:
    """Return the size of one shared draw of all members."""
    return max(1, model.members * sum(part.at_location(0).nbytes for part in model.stochastic()))


def _in_chunks(model: BayesianModel, args: Any, kwargs: Any, size: int, batch_size: int, how: dict[str, Any]) -> Any:
    """Run the model on a few examples at a time."""
    if batch_size >= size:
        return model(*args, **how, **kwargs)
    batch_dim = model.sampling.batch_dim
    lengths = [min(batch_size, size - begin) for begin in range(0, size, batch_size)]
    outputs, end = [], 0
    with _axes(model, model.members * max(how["samples"], 1) * lengths[0]) as axes:
        for length in lengths:
            begin, end = end, end + length
            some_args, some_kwargs = batching.narrow((args, kwargs), begin, end, size, batch_dim)
            outputs.append(model(*some_args, **how, **some_kwargs))
    return _join(outputs, lengths, axes)


def _check_no_nan(inputs: Any) -> None:
    for x in batching.tensors(inputs):
        # If a term is not a number the sum is none, and takes less time. Infinities of both signs do that, too.
        if x.is_floating_point() and x.sum().isnan() and x.isnan().any():
            place = tuple(int(i) for i in x.isnan().nonzero()[0])
            raise ValueError(
                f"Expected the input of `predict` to have no NaN, but got {int(x.isnan().sum())} of them, the first at "
                f"{place}. Impute missing values, as in training, before predicting."
            )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode for a while, and every module back into its own."""
    trained = [module for module in every_module(model) if module.training]
    if trained:
        model.eval()
    try:
        yield
    finally:
        for module in trained:
            module.training = True


class _Answered(Exception):  # noqa: N818
    """The network has answered the probe; its outputs are of no interest."""


def _bytes_per_row(model: BayesianModel, args: Any, kwargs: Any, size: int) -> int:
    """Estimate a row's memory: four times the largest output of any module, from one example.

    A layer holds its input, a perturbed copy, its output and perhaps a skip connection at once. Inputs of the same
    shapes as the last ones need no new estimate.
    """
    shapes = [(x.shape, x.dtype) for x in batching.tensors((args, kwargs))]
    if model.probed is not None and model.probed[0] == shapes:
        return model.probed[1]
    largest = [1]

    def note(module: nn.Module, inputs: Any, output: Any) -> None:
        largest[0] = max(largest[0], *(x.numel() * x.element_size() for x in batching.tensors((inputs, output))), 1)

    def stop(module: nn.Module, inputs: Any, output: Any) -> None:
        raise _Answered

    hooks = [module.register_forward_hook(note) for module in model.net.modules()]
    hooks.append(model.net.register_forward_hook(stop))
    try:
        one_args, one_kwargs = batching.narrow((args, kwargs), 0, 1, size, model.sampling.batch_dim)
        with suppress(_Answered):
            model.forward(*one_args, samples=0, **one_kwargs)  # not compiled, for one example alone
    finally:
        for hook in hooks:
            hook.remove()
    # Whole networks see one member's rows at a time.
    estimate = 4 * largest[0] if model.independent else -(-4 * largest[0] // model.members)
    model.probed = (shapes, estimate)
    return estimate


@contextmanager
def _axes(model: BayesianModel, rows: int) -> Iterator[list[int | None]]:
    """Yield a list that will hold the batch axis of each output, as the model finds it in the first chunk's rows.

    Without the rows it could not be told: of one example's logits, ``(1, 1)``, either axis may be the batch.
    """
    axes: list[int | None] = []

    def note(net: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if not axes:
            batch_dim = model.sampling.batch_dim
            axes.extend(
                None
                if isinstance(leaf, Tensor) and not leaf.dim()
                else batching.output_axis(leaf, rows, batch_dim, (args, kwargs))
                for leaf in batching.leaves(output)
            )

    hook = model.net.register_forward_hook(note, with_kwargs=True)
    try:
        yield axes
    finally:
        hook.remove()


def _join(outputs: list[Any], lengths: list[int], axes: list[int | None]) -> Any:
    """Join chunks of examples; numbers without an axis, such as auxiliary losses, are averaged."""
    remaining = iter(axes)

    def join(parts: tuple[Tensor, ...]) -> Tensor:
        axis = next(remaining)
        if axis is None:
            shares = torch.stack(parts) / sum(lengths)  # not whole numbers any more
            return shares @ shares.new_tensor(lengths)
        axis += 1  # the first is the draws'
        shapes = {(*part.shape[:axis], *part.shape[axis + 1 :]) for part in parts}
        if len(shapes) > 1:
            raise ValueError(
                f"Cannot join the outputs of chunks: apart from the examples, their shapes are {sorted(shapes)[:3]}. "
                "Give `predict` a `batch_size` of all examples, or let the network pad to one length (`total_length`)."
            )
        return torch.cat(parts, axis)

    return _zip_tensors(join, outputs)


def _interleave(outputs: list[Any], members: int) -> Any:
    """Join chunks of samples, member-major."""

    def join(parts: tuple[Tensor, ...]) -> Tensor:
        if parts[0].dim() == 0:
            return (torch.stack(parts) / len(parts)).sum()
        return torch.cat([part.unflatten(0, (members, -1)) for part in parts], 1).flatten(0, 1)

    return outputs[0] if len(outputs) == 1 else _zip_tensors(join, outputs)


def _zip_tensors(f: Callable[[tuple[Tensor, ...]], Tensor], nests: list[Any]) -> Any:
    """Apply ``f`` to the tensors that stand in the same place of each nest."""
    joined = map(f, zip(*map(batching.tensors, nests), strict=True))
    return batching.map_leaves(lambda leaf: next(joined), nests[0])
