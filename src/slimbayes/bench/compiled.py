"""Train steps whose forward pass and loss ``torch.compile`` has made into one graph, beside the eager ones."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from slimbayes.bench.networks import NETWORKS
from slimbayes.bench.price_rows import ROWS
from slimbayes.bench.steps import Step, train_step
from slimbayes.bench.suites import Case, Suite

__all__ = ["COMPILED_SUITES", "compiled"]

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
    return train_step(model, batches, compiled if wrap else None)


def _suite(name: str) -> Suite:
    cases = [Case(method, partial(_build, method, name, False)) for method in METHODS]
    cases += [Case(f"{method} compiled", partial(_build, method, name, True)) for method in METHODS]
    network = NETWORKS[name]
    description = f"train step of {network.title} on {network.rows} rows, eager and compiled"
    return Suite(f"compiled_{name}", description, tuple(cases), network.rows)


#: By name.
COMPILED_SUITES = {suite.name: suite for suite in map(_suite, ("mlp_512", "conv_16"))}
