"""Prediction in chunks of examples and samples, so that memory has a bound."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor, nn

from slimbayes import batching
from slimbayes._checks import check_count
from slimbayes._graphs import advice_on_matrices
from slimbayes.prediction import Prediction, PredictionSummary, check_joinable
from slimbayes.sampling import BLOCK, Blocks, Part, check_sampling

if TYPE_CHECKING:
    from slimbayes.model import BayesianModel

#: Bytes of activations that a prediction may hold at once, unless told otherwise.
MAX_MEMORY = 2**30
#: Bytes of a layer's output, on a CPU, beyond which rows take longer: the next layer finds them no more in the last
#: cache, which has some ten megabytes for several tensors.
CACHE = 2**23
#: Outputs of layers whose memory is taken at once.
OUTPUTS_OF_A_ROW = 4
#: Rows that a chunk may have however large their activations are: calls take time, too.
LEAST_ROWS = 64

#: Numbers in all draws' outputs up to which a prediction keeps them: 64 MiB in single precision.
KEPT = 2**24
#: Numbers in all draws' outputs that are summarised at once.
SUMMARISED = 2**20

#: Evaluations under way in all threads, by module that was in training mode before.
_evaluating: dict[nn.Module, int] = {}
_counting = threading.Lock()


def predict(
    model: BayesianModel,
    args: Any,
    kwargs: Any,
    samples: int,
    batch_size: int | None,
    noise: str | None,
    generator: Generator | None,
    max_memory: int,
    keep_draws: bool | None,
    read: Callable[[Any], Prediction],
) -> Prediction:
    """Return what ``read`` makes of the outputs on all examples, draws first; see ``BayesianModel.predict``."""
    if noise is None:
        # A weight that all draws of a pass share saves time in training; here draws are to differ.
        noise = "shared" if model.options.get("sample_per") == "batch" else model.options["noise"]
    check_sampling(samples, noise)
    noise = "shared" if model.coherent else noise
    check_count("max_memory", max_memory, 1)
    if batch_size is not None:
        check_count("batch_size", batch_size, 1)
    _check_finite((args, kwargs))
    args, kwargs = model.marked(args, kwargs)
    size = batching.batch_size((args, kwargs), model.sampling.batch_dim)
    if size == 0:
        raise ValueError("Expected a batch of at least one example, but got an empty one.")
    with evaluating(model), torch.no_grad(), _explaining(model, (args, kwargs)):
        each = max(samples, 1)
        if batch_size is None:
            batch_size, each = _sizes(model, size, each, max_memory, _bytes_per_row(model, args, kwargs, size))
        shared = noise == "shared" and samples > 0 and next(model.stochastic(), None) is not None
        weights_fit = True
        if shared and samples > 1:  # the draws of Gaussian weights are whole networks
            most = max(1, max_memory // _bytes_per_sample(model))
            each, weights_fit = min(each, most), samples <= most
        if samples > 0:
            generator = model.own_source(generator)
        seed: int | None = None
        if samples > 0 and not shared:  # seeds noise that does not depend on the chunks
            source: dict[str, Any] = {} if generator is None else {"generator": generator, "device": generator.device}
            seed = int(torch.randint(2**62, (), **source))
        chunks = _Chunks(model, args, kwargs, size, batch_size, samples, each, noise, shared, seed, generator)
        draws, numbers = model.members * max(samples, 1), chunks.numbers_of_a_row()
        keep = numbers * draws * size <= KEPT or not weights_fit if keep_draws is None else keep_draws
        if not keep:
            first = PredictionSummary.of(read(chunks.first))
            if keep_draws is False and not first.figures:
                raise ValueError(f"{first.errors['mean']} Without draws there is nothing to keep: keep_draws=True.")
            # Outputs whose examples are not where a Prediction looks for them cannot be taken apart.
            keep = not first.figures or (size > 1 and len(first) != min(batch_size, size))
        if keep:
            return read(chunks.outputs(0, size))
        if size == 1:  # such as a graph, whose nodes are the examples of the prediction
            return PredictionSummary.of(read(chunks.outputs(0, 1)))
        few = max(1, SUMMARISED // (numbers * draws))
        at_once = max(batch_size, few // batch_size * batch_size)
        some = (read(chunks.outputs(begin, min(begin + at_once, size))) for begin in range(0, size, at_once))
        parts = (PredictionSummary.of(p[i : i + few]) for p in some for i in range(0, len(p), few))
        return PredictionSummary.joined(parts, size)


@dataclass
class _Chunks:
    """The passes of a prediction: some samples of some examples each.

    Attributes:
        model: The model, in evaluation mode.
        args: The network's inputs.
        kwargs: Those by keyword.
        size: Examples.
        batch_size: Examples of a pass.
        samples: Samples of each member, 0 for its location.
        each: Samples of a pass.
        noise: How draws depend on examples.
        shared: Whether draws of the weights serve all examples.
        seed: Of noise that does not depend on the passes.
        generator: Of shared draws.
        first: Outputs of the first pass, until they are used.
    """

    model: BayesianModel
    args: Any
    kwargs: Any
    size: int
    batch_size: int
    samples: int
    each: int
    noise: str
    shared: bool
    seed: int | None
    generator: Generator | None
    first: Any = None
    _weights: dict[int, Any] = field(default_factory=dict)
    # Without the rows it could not be told: of one example's logits, (1, 1), either axis may be the batch.
    _axes: list[int | None] = field(default_factory=list)

    def numbers_of_a_row(self) -> int:
        """Make the first pass; return how many numbers the network returns for an example under one draw."""
        self.first = self._pass(0, 0)
        rows = self.model.members * max(1, min(self.each, self.samples)) * min(self.batch_size, self.size)
        return -(-sum(x.numel() for x in batching.tensors(self.first)) // rows)

    def outputs(self, begin: int, end: int) -> Any:
        """Return the outputs of all draws on some of the examples, which begin with those of a pass."""
        lengths = [min(self.batch_size, end - start) for start in range(begin, end, self.batch_size)]
        by_samples = []
        for sample in range(0, max(self.samples, 1), self.each):
            parts = [self._pass(sample, start) for start in range(begin, end, self.batch_size)]
            by_samples.append(parts[0] if len(parts) == 1 else _join(parts, lengths, self._axes))
            if end == self.size:
                self._weights.pop(sample, None)
        draws = _interleave(by_samples, self.model.members)
        _check_outputs(self.model, draws, begin)
        return draws

    def _pass(self, sample: int, begin: int) -> Any:
        """Run the model on the samples and examples from these numbers on."""
        if self.first is not None and sample == begin == 0:
            first, self.first = self.first, None
            return first
        model, length = self.model, min(self.batch_size, self.size - begin)
        count = min(self.each, self.samples - sample)  # 0 if samples is
        if self.shared and sample not in self._weights:
            # One shared draw serves all chunks of examples, or the function would not be one function.
            self._weights[sample] = model.draw(count, self.generator)
        blocks = None
        if self.seed is not None:
            blocks = Blocks(self.seed, Part(sample, count, begin, length), model.device)
        # Compilers do not follow what blocks draw: a model compiled in place runs here as it is.
        run = model if self.seed is None else model.forward
        args, kwargs = self.args, self.kwargs
        if length < self.size:
            batch_dim = model.sampling.batch_dim
            args, kwargs = batching.narrow((args, kwargs), begin, begin + length, self.size, batch_dim)
            if not self._axes:
                model.passes.axes = self._axes
        try:
            return run(
                *args, samples=count, noise=self.noise, generator=blocks, draw=self._weights.get(sample), **kwargs
            )
        finally:
            model.passes.axes = None


def _sizes(model: BayesianModel, size: int, samples: int, max_memory: int, bytes_per_row: int) -> tuple[int, int]:
    """Return how many examples and samples a chunk has."""
    members, rows = model.members, max_memory // bytes_per_row
    samples = min(samples, max(1, rows // members))
    in_cache = max(LEAST_ROWS, OUTPUTS_OF_A_ROW * CACHE // bytes_per_row)
    if model.device.type == "cpu" and in_cache < rows:
        rows = in_cache
        samples = min(samples, max(1, rows // (members * min(size, BLOCK))))
    examples = max(1, rows // (members * samples))
    whole_blocks = examples // BLOCK * BLOCK
    return (whole_blocks if whole_blocks > 0 and examples < size else examples), samples


def _bytes_per_sample(model: BayesianModel) -> int:
    """Return the size of one shared draw of all members."""
    return max(1, model.members * sum(part.at_location(0).nbytes for part in model.stochastic()))


@contextmanager
def _explaining(model: BayesianModel, inputs: Any) -> Iterator[None]:
    """Let an error of torch say which input it is about, if inputs are of another type or device than the weights."""
    try:
        yield
    except (RuntimeError, NotImplementedError) as error:
        for x in batching.tensors(inputs):
            if x.device.type != model.device.type:
                raise ValueError(
                    f"Expected the inputs of `predict` on {model.device}, where the model is, but got {x.device}. Move "
                    "them: x.to(model.device)."
                ) from error
            if x.dtype != model.dtype:
                raise TypeError(
                    f"Expected inputs of `predict` that fit weights of {model.dtype}, but got {x.dtype}: "
                    f"{str(error).splitlines()[0]}. Use x.to(model.dtype), or model.to(x.dtype)."
                ) from error
        size = batching.batch_size(inputs, model.sampling.batch_dim)
        if isinstance(error, RuntimeError) and (advice := advice_on_matrices(inputs, size)):
            raise ValueError(f"{str(error).splitlines()[0]}.{advice}") from error
        raise


class NonFiniteOutput(ValueError):  # noqa: N818
    """A network gave NaN or infinity for inputs that are finite.

    Attributes:
        value: What it gave.
        example: Number of the first example.
        weight: Name of the first weight that is not finite, if there is one.
    """

    def __init__(self, value: float, example: int, weight: str | None) -> None:
        self.value, self.example, self.weight = value, example, weight
        if weight is None:
            cause = "All weights are finite: a layer gave it. Look for too large inputs, logarithms and divisions."
        else:
            cause = f"The weights are to blame: {weight} is not finite. Load good weights, or train again."
        super().__init__(
            f"The network's output is {value:g} for example {example} although its inputs are finite. {cause}"
        )


def _check_finite(inputs: Any) -> None:
    for position, x in enumerate(batching.tensors(inputs)):
        # If a term is not finite neither is the sum, which takes less time. A sum may also be too large.
        if (
            x.is_floating_point()
            and not x.is_meta
            and not x.sum().isfinite()
            and not x.isfinite().all()
            and not (position and _is_mask(x))
        ):
            wrong = ~x.isfinite()
            first = tuple(int(i) for i in wrong.nonzero()[0])
            raise ValueError(
                f"Expected the input of `predict` to have no NaN and no infinite value, but got {int(wrong.sum())} of "
                f"them, the first at {first}: {x[first].item()}. Impute missing values, as in training, and "
                "correct infinite ones before predicting."
            )


def _is_mask(x: Tensor) -> bool:
    """Tell whether a tensor beside the first may be one that is added to scores, with -inf for what is ruled out."""
    return bool((x <= 0).all() & (x == 0).any())


def _check_outputs(model: BayesianModel, draws: Any, begin: int) -> None:
    """Raise if outputs are NaN or infinite although the inputs were finite, and say where that may come from.

    A logit of minus infinity rules a class out, and is none.

    Args:
        model: The model.
        draws: Its outputs.
        begin: Number of their first example.
    """
    for y in batching.tensors(draws):
        if not y.is_floating_point() or y.sum().isfinite():
            continue
        if (wrong := y.isnan() | y.isposinf()).any():
            named = (*model.net.named_parameters(), *model.net.named_buffers())
            weights = (name for name, x in named if x.is_floating_point() and not x.isfinite().all())
            first = wrong.nonzero()[0].tolist()
            position = [*first, 0, 0]
            example = begin + position[min(1 + model.sampling.batch_dim, y.dim())]
            raise NonFiniteOutput(y[tuple(first)].item(), example, next(weights, None))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode for a while, and every module back into its own.

    Where several threads do so, the last one puts them back.
    """
    with _counting:
        trained = [module for module in model.modules() if module.training or module in _evaluating]
        if any(module.training for module in trained):
            model.eval()
        for module in trained:
            _evaluating[module] = _evaluating.get(module, 0) + 1
    try:
        yield
    finally:
        with _counting:
            for module in trained:
                _evaluating[module] -= 1
                if not _evaluating[module]:
                    del _evaluating[module]
                    module.training = True


class Answered(Exception):  # noqa: N818
    """The network has answered a pass that tries it; its outputs are of no interest."""


def _bytes_per_row(model: BayesianModel, args: Any, kwargs: Any, size: int) -> int:
    """Estimate a row's memory: four times the largest output of any module, from one example.

    A layer holds its input, a perturbed copy, its output and perhaps a skip connection at once. Inputs of the same
    shapes as the last ones need no new estimate.
    """
    shapes = [(x.shape, x.dtype) for x in batching.tensors((args, kwargs))]
    with model.trial:
        probed = model.probed
        if probed is None or probed[0] != shapes:
            probed = model.probed = (shapes, _probe(model, args, kwargs, size))
        return probed[1]


def _probe(model: BayesianModel, args: Any, kwargs: Any, size: int) -> int:
    largest, thread = [1], threading.get_ident()

    def note(module: nn.Module, inputs: Any, output: Any) -> None:
        if threading.get_ident() != thread:
            return
        largest[0] = max(largest[0], *(x.numel() * x.element_size() for x in batching.tensors((inputs, output))), 1)

    def end(*_: Any) -> None:
        if threading.get_ident() == thread:
            raise Answered

    hooks = [module.register_forward_hook(note) for module in model.net.modules()]
    hooks.append(model.net.register_forward_hook(end))
    try:
        one_args, one_kwargs = batching.narrow((args, kwargs), 0, 1, size, model.sampling.batch_dim)
        with suppress(Answered):
            model.forward(*one_args, samples=0, **one_kwargs)  # not compiled, for one example alone
    finally:
        for hook in hooks:
            hook.remove()
    # Whole networks see one member's rows at a time.
    bytes_of_row = OUTPUTS_OF_A_ROW * largest[0]
    return bytes_of_row if model.independent else -(-bytes_of_row // model.members)


def _join(outputs: list[Any], lengths: list[int], axes: list[int | None]) -> Any:
    """Join chunks of examples; numbers without an axis, such as auxiliary losses, are averaged."""
    remaining = iter(axes)

    def join(parts: tuple[Tensor, ...]) -> Tensor:
        axis = next(remaining)
        if axis is None:
            shares = torch.stack(parts) / sum(lengths)  # not whole numbers any more
            return shares @ shares.new_tensor(lengths)
        check_joinable(parts, axis + 1)  # the first is the draws'
        return torch.cat(parts, axis + 1)

    return _zip_tensors(join, outputs)


def _interleave(outputs: list[Any], members: int) -> Any:
    """Join chunks of samples, member-major."""

    def join(parts: tuple[Tensor, ...]) -> Tensor:
        if parts[0].dim() == 0:
            return (torch.stack(parts) / len(parts)).sum()
        return torch.cat([part.unflatten(0, (members, -1)) for part in parts], 1).flatten(0, 1)

    return outputs[0] if len(outputs) == 1 else _zip_tensors(join, outputs)


def _zip_tensors(f: Callable[[tuple[Tensor, ...]], Tensor], nests: list[Any]) -> Any:
    """Apply ``f`` to the tensors that have the same position in each nest."""
    joined = map(f, zip(*map(batching.tensors, nests), strict=True))
    return batching.map_leaves(lambda leaf: next(joined), nests[0])
