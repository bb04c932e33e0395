"""Whether a model's chains mix: a summary of the samples that it kept."""

from typing import Any

import torch
from torch import Tensor

from slimbayes import batching
from slimbayes._chunks import evaluating
from slimbayes.mcmc.diagnostics_table import ChainSummary, chain_summary
from slimbayes.mcmc.model_sampler import chains_of

__all__ = ["chain_report", "kept_samples"]


def kept_samples(model: Any) -> dict[str, Tensor]:
    """Return the samples that a model kept: for each factor, or each parameter of the networks, a tensor.

    Args:
        model: Made by ``sb.sgmcmc``.

    Returns:
        By name, ``(chains, samples, *shape)``, oldest first: what ``to_arviz`` takes.

    Example:
        >>> import slimbayes as sb
        >>> model = sb.sgmcmc(torch.nn.Linear(8, 3), members=4, over="factors")
        >>> model.collect()
        >>> {name: tuple(samples.shape) for name, samples in kept_samples(model).items()}
        {'input_factor': (4, 1, 8), 'output_factor': (4, 1, 3)}
    """
    chains = chains_of(model)
    kept = {name: value.unflatten(0, (chains.members, -1)) for name, value in chains.kept_draw().items()}
    if not chains.independent:
        return kept
    networks: Any = chains.net
    (states,) = kept.values()
    parameters = dict(networks.networks[0].named_parameters())
    return {name: value for name, value in networks.layout.state(states).items() if name in parameters}


def chain_report(model: Any, *args: Any, **kwargs: Any) -> ChainSummary:
    """Return effective sample size and R-hat of what a model kept, for each factor or parameter.

    All chains have the same target, so that R-hat compares them. Between whole networks it says little: their units
    can change places, and chains that agree in what they compute differ in their weights. Give inputs to judge the
    outputs, too.

    Args:
        model: Made by ``sb.sgmcmc``, with four kept samples at least; ten for effective sample sizes.
        *args: Inputs of the network, a few examples; none to leave the outputs out.
        **kwargs: Its keyword arguments.

    Example:
        >>> import slimbayes as sb
        >>> _ = torch.manual_seed(0)
        >>> model = sb.sgmcmc(lambda: torch.nn.Linear(2, 1), members=2, keep=50)
        >>> for _ in range(50):  # a perfect sampler of N(0, 1)
        ...     _ = [torch.nn.init.normal_(parameter) for parameter in model.parameters()]
        ...     model.collect()
        >>> print(chain_report(model, torch.randn(3, 2)))
        factor  elements  undefined  min ESS  median ESS  max R-hat
        weight  2         0          108.3    108.3       1.014
        bias    1         0          78.8     78.8        1.027
        output  3         0          81.0     82.0        1.026
        2 chains of 50 samples
    """
    chains = chains_of(model)
    samples = kept_samples(model)
    if args or kwargs:
        with evaluating(chains), torch.no_grad():
            outputs = list(batching.tensors(chains(*args, draw=chains.kept_draw(), **kwargs)))
        for position, output in enumerate(outputs):
            name = "output" if len(outputs) == 1 else f"output {position}"
            samples[name] = output.unflatten(0, (chains.members, -1))
    return chain_summary(samples)
