"""What is measured: suites of training steps that differ in the method alone."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

import slimbayes as sb
from benchmarks.networks import NETWORKS
from benchmarks.price_rows import ROWS
from benchmarks.steps import Step, train_step
from slimbayes._checks import check_choice

__all__ = ["SUITES", "Case", "Suite", "compiled", "training_step"]


#: Divides the KL. Any number costs the same; this one is MNIST's.
NUM_DATA = 60_000


@dataclass(frozen=True)
class Case:
    """One row of a suite's table.

    Attributes:
        name: Unique in its suite.
        build: Makes the network and its rows from torch's global generator, and returns the step to time.
    """

    name: str
    build: Callable[[], Step]


@dataclass(frozen=True)
class Suite:
    """Cases that are measured in one interleaved run.

    Attributes:
        name: What the command line calls it.
        description: One line.
        cases: The rows of its table.
        batch: Rows of the batch that every case trains on.
        baseline: The case that the others are divided by.
    """

    name: str
    description: str
    cases: tuple[Case, ...]
    batch: int
    baseline: str = "plain"

    def pick(self, names: Sequence[str] | None = None) -> list[Case]:
        """Return the cases of these names, in the suite's order; the baseline is always among them.

        Args:
            names: None for all of them.

        Example:
            >>> [case.name for case in SUITES["dense"].pick(["rank1"])]
            ['plain', 'rank1']
        """
        known = [case.name for case in self.cases]
        for name in names or ():
            check_choice("cases", name, known)
        return [case for case in self.cases if names is None or case.name in (self.baseline, *names)]


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the log-likelihood of unit noise without its constant: cheap, and the same for all cases.

    Shape:
        - Outputs: ``(*, batch, features)``. Targets: ``(batch, features)``. Result: ``(*, batch)``.
    """
    return -0.5 * (outputs - targets).square().sum(-1)


def training_step(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Return a function that trains a model by one step: zero_grad, forward, loss, backward, fused Adam.

    The loss is the mean squared error over the batch, plus the KL for a Bayesian model.

    Args:
        model: A plain network or a ``BayesianModel``.
        x: Inputs, always the same. If they require a gradient it is computed, as for a layer inside a network.
        y: Targets.

    Example:
        >>> net = nn.Linear(8, 3)
        >>> before = net.weight.clone()
        >>> training_step(net, torch.randn(5, 8), torch.randn(5, 3))()
        >>> torch.equal(net.weight, before)
        False
    """
    optimiser = torch.optim.Adam(model.parameters(), fused=True)
    elbo = sb.ELBO(model, NUM_DATA, squared_error) if isinstance(model, sb.BayesianModel) else None

    def step() -> None:
        optimiser.zero_grad()
        x.grad = None
        outputs = model(x)
        loss = -squared_error(outputs, y).mean() if elbo is None else elbo(outputs, y)
        loss.backward()
        optimiser.step()

    return step


DENSE_WIDTH, DENSE_BATCH = 1024, 256


def _step(
    net: Callable[[], nn.Module], x: tuple[int, int], outputs: int, inside: bool, method: str | None, **options: Any
) -> Step:
    """Return the step of a network made by a method, None for the plain one, on inputs of shape ``x``."""
    plain = net()
    inputs, targets = torch.randn(x), torch.randn(x[0], outputs)
    model = plain if method is None else getattr(sb, method)(plain, **options)
    return training_step(model, inputs.requires_grad_(inside), targets)


def _dense(method: str | None = None, inside: bool = True, **options: Any) -> Step:
    build = partial(nn.Linear, DENSE_WIDTH, DENSE_WIDTH)
    return _step(build, (DENSE_BATCH, DENSE_WIDTH), DENSE_WIDTH, inside, method, **options)


def _dense_suite(name: str, position: str, inside: bool) -> Suite:
    estimators = ("reparameterization", "local", "flipout")
    build = partial(_dense, inside=inside)
    return Suite(
        name,
        f"train step of one nn.Linear({DENSE_WIDTH}, {DENSE_WIDTH}) {position}, {DENSE_BATCH} rows, one draw",
        (
            Case("plain", build),
            *(Case(f"k_tied/{e}", partial(build, "k_tied", k=2, prior_std=0.3, estimator=e)) for e in estimators),
            *(Case(f"mean_field/{e}", partial(build, "mean_field", prior_std=0.3, estimator=e)) for e in estimators),
            Case("rank1", partial(build, "rank1", members=1)),
            Case("batch_ensemble", partial(build, "batch_ensemble", members=1)),
        ),
        DENSE_BATCH,
    )


TWO_DENSE_BATCH = 32  # the default of Keras, with which the tutorial's network is trained


def _two_dense(method: str | None = None, **options: Any) -> Step:
    net = partial(sb.nets.MLP, 784, [128], 10)
    return _step(net, (TWO_DENSE_BATCH, 784), 10, False, method, **options)


def _two_dense_suite() -> Suite:
    """Table 4 of the k-tied paper: the network of a Keras tutorial."""
    estimators = ("reparameterization", "local")
    gaussian = {"mean_field": {"prior_std": 0.3}, "k_tied": {"k": 2, "prior_std": 0.3}}
    return Suite(
        "two_dense",
        f"train step of two dense layers, 784 to 128 to 10, {TWO_DENSE_BATCH} rows, one draw",
        (
            Case("plain", _two_dense),
            *(
                Case(f"{method}/{e}", partial(_two_dense, method, estimator=e, **options))
                for method, options in gaussian.items()
                for e in estimators
            ),
        ),
        TWO_DENSE_BATCH,
    )


LOOP_BATCH = 125  # of 1,000 digits


def _loop_suite(name: str, title: str, net: dict[str, Any]) -> Suite:
    def build(which: str) -> Step:
        from benchmarks import training_loop

        return getattr(training_loop, which)(net)

    return Suite(
        name,
        f"epoch of a rank-1 {title} on digits, eight steps of {LOOP_BATCH} examples for four members",
        (Case("bare", partial(build, "bare_epoch")), Case("slimbayes train", partial(build, "loop_epoch"))),
        LOOP_BATCH,
        "bare",
    )


EAGER_SUITES = {
    suite.name: suite
    for suite in (
        _loop_suite("loop_mlp", "MLP of 400 and 400 units", {"name": "mlp", "hidden": [400, 400]}),
        _loop_suite("loop_conv", "LeNet", {"name": "lenet"}),
        _dense_suite("dense", "inside a network (its input needs a gradient, too)", True),
        _dense_suite("dense_first", "that comes first (its input needs no gradient)", False),
        _two_dense_suite(),
    )
}


#: What `_fast` does, by the row of the price table that it is there for: each part with the operations that decline
#: where it is switched off. (Whole layers scale their rows by the same kernel.)
PIECES: dict[str, dict[str, tuple[str, ...]]] = {
    "batch_ensemble": {"scaled_linear": ("scaled_linear",), "scale_rows": ("scale_rows", "scaled_linear")},
    "rank1 per example": {
        "scaled_linear": ("scaled_linear",),
        "scale_rows": ("scale_rows", "scaled_linear"),
        "signed_noise": ("signed_noise",),
    },
    "k_tied local": {name: (name,) for name in ("local_linear", "weighted_sum")},
}


def _without(method: str, network_name: str, operations: Sequence[str]) -> Step:
    """Return a train step in which `_fast` declines some operations, so that the plain ones do the work."""
    network = NETWORKS[network_name]
    model, batches = ROWS[method].model(network, torch.device("cpu"))
    step = train_step(model, batches, precision=network.precision)

    def slower() -> None:
        with ExitStack() as stack:
            for operation in operations:
                stack.enter_context(patch.object(import_module("slimbayes._fast"), operation, lambda *args: None))
            step()

    return slower


def _pieces_suite(name: str) -> Suite:
    network = NETWORKS[name]
    cases = [Case("plain", partial(_without, "plain", name, ()))]
    for method, parts in PIECES.items():
        if not ROWS[method].applies(network):
            continue
        cases.append(Case(method, partial(_without, method, name, ())))
        cases += [Case(f"{method}, no {part}", partial(_without, method, name, off)) for part, off in parts.items()]
        every = tuple(operation for off in parts.values() for operation in off)
        cases.append(Case(f"{method}, none", partial(_without, method, name, every)))
    return Suite(
        f"fast_{name}",
        f"train step of {network.title} on {network.rows} rows, with parts of _fast switched off",
        tuple(cases),
        network.rows,
    )


#: Rows of the price table that are compiled.
METHODS = ("plain", "batch_ensemble", "rank1 shared", "rank1 per example")


def compiled(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Compile a loss of inputs and targets into one graph that draws torch's own random numbers.

    The compiler's own take several times as long on a CPU. It needs a C++ compiler.

    Args:
        loss: The model's forward pass and what is minimised.
    """
    from torch._inductor import config

    graph = torch.compile(loss, fullgraph=True)

    def run(x: Tensor, y: Tensor) -> Tensor:
        with config.patch(fallback_random=True):
            return graph(x, y)

    return run


def _build(method: str, network_name: str, wrap: bool) -> Step:
    network = NETWORKS[network_name]
    model, batches = ROWS[method].model(network, torch.device("cpu"))
    return train_step(model, batches, compiled if wrap else None, network.precision)


def _suite(name: str) -> Suite:
    cases = [Case(method, partial(_build, method, name, False)) for method in METHODS]
    cases += [Case(f"{method} compiled", partial(_build, method, name, True)) for method in METHODS]
    network = NETWORKS[name]
    description = f"train step of {network.title} on {network.rows} rows, eager and compiled"
    return Suite(f"compiled_{name}", description, tuple(cases), network.rows)


COMPILED_SUITES = {suite.name: suite for suite in map(_suite, ("mlp_512", "conv_16", "resnet_20_bf16"))}
PIECES_SUITES = {suite.name: suite for suite in map(_pieces_suite, ("mlp_512", "conv_16", "resnet_20_bf16"))}
#: By name.
SUITES = EAGER_SUITES | COMPILED_SUITES | PIECES_SUITES
