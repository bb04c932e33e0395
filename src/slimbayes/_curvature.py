"""The curvature of a likelihood in each random number of a model, example by example."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Generator, Tensor

from slimbayes import batching
from slimbayes.layers.base import Stochastic
from slimbayes.likelihoods import Likelihood
from slimbayes.model import BayesianModel
from slimbayes.sampling import Sampling

#: Numbers that the copies of the random parts, one for each row, may have together.
COPIES = 2**26
#: Outputs of an example at most: their curvature is a matrix.
MOST_OUTPUTS = 1024


def curvatures(
    model: BayesianModel,
    parts: list[Stochastic],
    batches: Any,
    reading: Likelihood,
    generator: Generator,
    after_batch: Callable[[], object],
) -> tuple[list[Tensor], int]:
    r"""Return the diagonal of the generalised Gauss-Newton matrix in the values of each part, and the examples.

    .. math::
        h_i = \sum_n (J_n^\top \Lambda_n J_n)_{ii}, \qquad J_n = \partial f_n / \partial z, \qquad
        \Lambda_n = -\partial^2 \log p(y_n \mid f) / \partial f^2

    at the members' locations z. With :math:`\Lambda = A A^\top` and a vector s of random signs,
    :math:`\mathbb E\,(J^\top A s)_i^2 = (J^\top \Lambda J)_{ii}`: one backward pass gives an estimate, which is exact
    for one output. Where :math:`\Lambda` has negative eigenvalues, they count as 0.

    Args:
        model: The model; its mode is left as it is.
        parts: Random parts of it.
        batches: Pairs of inputs and targets.
        reading: The likelihood.
        generator: Source of the signs, on the CPU.
        after_batch: Called after each batch.
    """
    totals = [torch.zeros_like(part.hold(model.members, 0, None), dtype=torch.double) for part in parts]
    most = max(1, COPIES // max(1, sum(total.numel() for total in totals)))
    examples = 0
    for inputs, targets in batches:
        for one, its, size in _small(model, inputs, targets, most):
            examples += size
            for total, square in zip(totals, _squares(model, parts, one, its, size, reading, generator), strict=True):
                total += square
        after_batch()
    return totals, examples


def _small(model: BayesianModel, inputs: Any, targets: Tensor, most: int) -> Iterator[tuple[Any, Tensor, int]]:
    """Yield parts of a batch that have at most so many examples."""
    batch_dim = model.sampling.batch_dim
    size = batching.batch_size(inputs, batch_dim)
    if size <= most:
        yield inputs, targets, size
        return
    axis = batch_dim if targets.dim() > batch_dim else 0
    for begin in range(0, size, most):
        end = min(begin + most, size)
        yield (
            batching.narrow(inputs, begin, end, size, batch_dim),
            targets.narrow(axis, begin, end - begin),
            end - begin,
        )


def _squares(
    model: BayesianModel,
    parts: list[Stochastic],
    inputs: Any,
    targets: Tensor,
    size: int,
    reading: Likelihood,
    generator: Generator,
) -> list[Tensor]:
    """Return the sum over examples of the squared gradients of ``sqrt(Lambda)`` times random signs."""
    members, batch_dim = model.members, model.sampling.batch_dim
    # Each example takes the place of a draw: it has the random parts' values for itself, and so a gradient.
    held = {part.name: part.hold(members, 0, None).detach().repeat_interleave(size, 0) for part in model.stochastic()}
    own = [held[part.name].requires_grad_() for part in parts]
    args, kwargs = ((), dict(inputs)) if isinstance(inputs, dict) else (as_arguments(inputs), {})
    args, kwargs = batching.on_batch(
        (args, kwargs), size, batch_dim, lambda x, axis: batching.tile(x, axis, members), False
    )
    rows = members * size
    with torch.enable_grad():
        before, model.passes.now = (
            model.passes.now,
            Sampling(size, "shared", rows, batch_dim, None, held, {}, None, True),
        )
        try:
            answer = model.net(*args, **kwargs)
        finally:
            model.passes.now = before
        answer = batching.split_draws(answer, members, rows, batch_dim, (args, kwargs))
        outputs, targets = reading.read(answer, targets.to(model.device), batch_dim)
        noise = _curvature_noise(reading, outputs.detach(), targets, generator)
        found = torch.autograd.grad(outputs, own, noise.to(outputs.dtype), allow_unused=True)
    return [
        torch.zeros((), dtype=torch.double) if gradient is None else _summed(gradient, members) for gradient in found
    ]


def as_arguments(inputs: Any) -> tuple[Any, ...]:
    """Return a network's inputs as positional arguments."""
    return tuple(inputs) if type(inputs) in (tuple, list) else (inputs,)


def _summed(gradient: Tensor, members: int) -> Tensor:
    return gradient.double().square().unflatten(0, (members, -1)).sum(1)


@torch.enable_grad()
def _curvature_noise(reading: Likelihood, outputs: Tensor, targets: Tensor, generator: Generator) -> Tensor:
    r"""Return :math:`A s`: :math:`A A^\top` is the curvature in each example's outputs, s random signs."""
    shape, size = outputs.shape, outputs[0, 0].numel()
    if size > MOST_OUTPUTS:
        raise ValueError(
            f"Expected argument `net` to have at most {MOST_OUTPUTS} outputs for each example, whose curvature is a "
            f"matrix, but got {size}. Give a network of fewer."
        )
    outputs = outputs.double().requires_grad_()
    with torch.autocast(outputs.device.type, enabled=False):
        targets = targets.double() if targets.is_floating_point() else targets
        (slope,) = torch.autograd.grad(reading.log_prob(outputs, targets).sum(), outputs, create_graph=True)
        flat = slope.flatten(2)
        rows = [
            torch.autograd.grad(flat[..., i].sum(), outputs, retain_graph=True)[0].flatten(2)
            if flat.requires_grad
            else torch.zeros_like(flat)
            for i in range(size)
        ]
        values, vectors = torch.linalg.eigh(-torch.stack(rows, -2))
        signs = torch.randint(2, values.shape, generator=generator).to(values) * 2 - 1
        noise = (vectors * values.clamp_min(0).sqrt().unsqueeze(-2)) @ signs.unsqueeze(-1)
    return noise.view(shape).detach()
