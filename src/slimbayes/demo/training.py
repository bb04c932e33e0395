"""Train any of the demo's models: one loop, and what a law needs around it."""

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

import slimbayes as sb
from slimbayes.methods.registry import get_method

__all__ = ["DRAWS", "finish", "train"]

BATCH = 100
#: Draws at test time, of all members together, for methods that sample.
DRAWS = 16


def train(
    model: sb.BayesianModel,
    data: tuple[Tensor, Tensor],
    epochs: int,
    seed: int,
    lr: float,
    weight_decay: float,
    temperature: float,
) -> tuple[sb.ELBO, list[dict[str, Any]]]:
    """Train on the ELBO, chains by SGHMC and all else by AdamW; what collects does so in the second half.

    Args:
        model: The model.
        data: Images and labels.
        epochs: Passes over them.
        seed: Of their order.
        lr: Learning rate of AdamW; chains have one of their own.
        weight_decay: Of AdamW.
        temperature: Of chains.

    Returns:
        The objective, and for each epoch the means of its terms.
    """
    images, labels = data
    generator = torch.Generator().manual_seed(seed)
    steps = epochs * -(-len(images) // BATCH)
    elbo = sb.ELBO(model, num_data=len(images), beta=sb.linear_annealing(max(1, 2 * steps // 3)))
    optimiser = _optimiser(model, len(images), lr, weight_decay, temperature)
    model.train()
    history = []
    for epoch in range(1, epochs + 1):
        sums = torch.zeros(3)
        for rows in torch.randperm(len(images), generator=generator).split(BATCH):
            optimiser.zero_grad()
            terms = elbo.terms(model(images[rows]), labels[rows])
            terms.loss.backward()
            optimiser.step()
            elbo.step()
            sums += len(rows) * torch.stack([terms.nll, terms.kl, terms.loss]).detach()
        means = dict(zip(("nll", "kl", "loss"), (sums / len(images)).tolist(), strict=True))
        history.append({"epoch": epoch, "train": means, "validation": None})
        if model.needed and epoch > epochs // 2:
            model.collect()
            _let_the_base_rest(model, optimiser)
    return elbo, history


def finish(method: str, elbo: sb.ELBO, data: tuple[Tensor, Tensor], options: dict[str, Any]) -> sb.BayesianModel:
    """Do what a method does after training, and return the model to score."""
    if method == "subspace":
        sb.subspace_inference(elbo, [data], samples=DRAWS, quiet=True)
    if method == "laplace":
        return sb.laplace(elbo.model.member(0), [data], prior_precision=options["prior_precision"])
    return elbo.model


def _optimiser(model: sb.BayesianModel, num_data: int, lr: float, weight_decay: float, temperature: float) -> Optimizer:
    if get_method(model.method).sampled:
        return sb.chain_sampler(model, num_data, lr=0.05, temperature=temperature)
    return torch.optim.AdamW(model.param_groups(weight_decay=weight_decay), lr=lr)


def _let_the_base_rest(model: sb.BayesianModel, optimiser: Optimizer) -> None:
    """Keep what chains over factors share as it is: their samples are used with the base that there is in the end."""
    if get_method(model.method).sampled:
        for group in optimiser.param_groups:
            if group["temperature"] == 0:
                group["lr"] = 0.0
