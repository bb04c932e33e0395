"""Prediction in chunks of examples and samples, so that memory has a bound."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor, nn

from slimbayes import tree
from slimbayes._checks import check_count
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
    noise = model.options["noise"] if noise is None else noise
    check_sampling(samples, noise)
    check_count("max_memory", max_memory, 1)
    _check_no_nan((args, kwargs))
    batch_dim = model.sampling.batch_dim
    size = tree.batch_size((args, kwargs), batch_dim)
    with _evaluating(model), torch.no_grad():
        each = samples
        if batch_size is None:
            rows = max_memory // _bytes_per_row(model, args, kwargs, size)
            each = min(samples, max(1, rows // model.members))
            batch_size = max(1, rows // (model.members * max(each, 1)))
        check_count("batch_size", batch_size, 1)
        by_samples = []
        for start in range(0, max(samples, 1), max(each, 1)):
            count = min(each, samples - start) if samples else 0
            # One shared draw must serve all chunks of examples, or the function would not be one function.
            draw = model.draw(count, generator) if noise == "shared" and count else None
            by_examples = [
                model(
                    *_narrow(args, begin, batch_size, size, batch_dim),
                    samples=count,
                    noise=noise,
                    generator=generator,
                    draw=draw,
                    **_narrow(kwargs, begin, batch_size, size, batch_dim),
                )
                for begin in range(0, size, batch_size)
            ]
            lengths = [min(batch_size, size - begin) for begin in range(0, size, batch_size)]
            by_samples.append(_join(by_examples, lengths, batch_dim))
        return _interleave(by_samples, model.members)


def _check_no_nan(inputs: Any) -> None:
    for x in tree.tensors(inputs):
        if x.is_floating_point() and x.isnan().any():
            place = tuple(int(i) for i in x.isnan().nonzero()[0])
            raise ValueError(
                f"Expected the input of `predict` to have no NaN, but got {int(x.isnan().sum())} of them, the first at "
                f"{place}. Impute missing values, as in training, before predicting."
            )


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def _bytes_per_row(model: BayesianModel, args: Any, kwargs: Any, size: int) -> int:
    """Estimate a row's memory: four times the largest output of any module, from one example.

    A layer holds its input, a perturbed copy, its output and perhaps a skip connection at once.
    """
    largest = [1]

    def note(module: nn.Module, inputs: Any, output: Any) -> None:
        largest[0] = max(largest[0], *(x.numel() * x.element_size() for x in tree.tensors((inputs, output))), 1)

    hooks = [module.register_forward_hook(note) for module in model.net.modules()]
    try:
        batch_dim = model.sampling.batch_dim
        one_args, one_kwargs = (_narrow(part, 0, 1, size, batch_dim) for part in (args, kwargs))
        model(*one_args, samples=0, **one_kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return -(-4 * largest[0] // model.members)


def _narrow(inputs: Any, begin: int, length: int, size: int, batch_dim: int) -> Any:
    def part(x: Tensor, axis: int) -> Tensor:
        return x.narrow(axis, begin, min(length, size - begin))

    return tree.on_batch(inputs, size, batch_dim, part)


def _join(outputs: list[Any], lengths: list[int], batch_dim: int) -> Any:
    """Join chunks of examples; numbers without an axis, such as auxiliary losses, are averaged."""
    if len(outputs) == 1:
        return outputs[0]
    flat = [list(tree.tensors(output)) for output in outputs]
    joined = []
    for parts in zip(*flat, strict=True):
        if parts[0].dim() == 0:
            joined.append(torch.stack(parts).mean())
            continue
        axis = tree.axis_of(parts[0][0], lengths[0], batch_dim)
        joined.append(torch.cat(parts, 1 + (axis or 0)))
    queue = iter(joined)
    return tree.map_leaves(lambda leaf: next(queue), outputs[0])


def _interleave(outputs: list[Any], members: int) -> Any:
    """Join chunks of samples, member-major."""
    if len(outputs) == 1:
        return outputs[0]
    flat = [list(tree.tensors(output)) for output in outputs]
    joined = [
        torch.stack(parts).mean()
        if parts[0].dim() == 0
        else torch.cat([part.unflatten(0, (members, -1)) for part in parts], 1).flatten(0, 1)
        for parts in zip(*flat, strict=True)
    ]
    queue = iter(joined)
    return tree.map_leaves(lambda leaf: next(queue), outputs[0])
