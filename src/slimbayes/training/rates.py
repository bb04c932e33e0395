"""Optimisers and learning rates from a configuration."""

import math
from functools import partial
from typing import Any

import torch
from torch import Generator
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from slimbayes.mcmc.cyclical import CyclicalRate
from slimbayes.mcmc.model_sampler import ALGORITHMS, chain_sampler
from slimbayes.mcmc.sampler import Sampler
from slimbayes.methods.registry import method_of
from slimbayes.model import BayesianModel
from slimbayes.training.config import Optimiser, Schedule

__all__ = ["build_cycles", "build_optimiser", "build_schedule", "rate", "restore_schedule", "switch_noise"]


def build_optimiser(
    config: Optimiser, model: BayesianModel, num_data: int, generator: Generator | None = None
) -> Optimizer:
    """Return the optimiser; weight decay spares what has a KL.

    Args:
        config: The optimiser.
        model: What it moves.
        num_data: Training examples, which a sampler's noise depends on.
        generator: Source of a sampler's noise, which must be the same in all processes; None for torch's global one.

    Example:
        >>> import slimbayes as sb
        >>> model = sb.rank1(torch.nn.Linear(3, 2))
        >>> build_optimiser(Optimiser(name="sgd", lr=0.1), model, num_data=100).defaults["nesterov"]
        True
    """
    method = method_of(model)
    if (config.name in ALGORITHMS) != (method is not None and method.sampled):
        raise ValueError(
            f"Expected `optimiser.name` to be {' or '.join(ALGORITHMS)} with `method.name` sgmcmc, and with no other, "
            f"but got {config.name!r} with {model.method!r}. Samplers move chains; sgmcmc has nothing else."
        )
    if config.name in ALGORITHMS:
        return _sampler(config, model, num_data, generator)
    groups = model.param_groups(config.lr, config.weight_decay, config.factor_lr)
    # One kernel for all parameters. Where torch has none it raises, so that None lets it choose.
    fused = all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in model.parameters()) or None
    if config.name == "sgd":
        nesterov = config.nesterov and config.momentum > 0
        return torch.optim.SGD(groups, config.lr, config.momentum, nesterov=nesterov, fused=fused)
    kind = torch.optim.Adam if config.name == "adam" else torch.optim.AdamW
    return kind(groups, config.lr, config.betas, fused=fused)


def _sampler(config: Optimiser, model: BayesianModel, num_data: int, generator: Generator | None) -> Sampler:
    if model.independent and (config.weight_decay or config.factor_lr is not None):
        raise ValueError(
            f"Expected `optimiser.weight_decay` and `optimiser.factor_lr` to be left out with chains over all weights, "
            f"but got {config.weight_decay} and {config.factor_lr}. Their prior is `method.prior_std`, their rate `lr`."
        )
    lr = config.lr if config.factor_lr is None else config.factor_lr
    return chain_sampler(
        model,
        num_data,
        config.name,
        lr=lr,
        temperature=config.temperature,
        base_lr=config.lr,
        base_weight_decay=config.weight_decay,
        generator=generator,
        **({"momentum_decay": config.momentum_decay} if config.name == "sghmc" else {}),
    )


def build_schedule(
    config: Schedule, optimiser: Optimizer, steps_per_epoch: int, steps: int, rest: int | None = None
) -> LambdaLR:
    """Return the learning rates of all groups, to be moved by each optimiser step.

    Args:
        config: The schedule.
        optimiser: What it moves.
        steps_per_epoch: Optimiser steps of an epoch.
        steps: Those of the whole run.
        rest: Step from which a sampler's groups that are not sampled rest: chains over factors are kept for the base
            that there is in the end.
    """
    moving = partial(rate, config=config, steps_per_epoch=steps_per_epoch, steps=steps)

    def resting(step: int) -> float:
        return moving(step) if rest is None or step < rest else 0.0

    sampler = isinstance(optimiser, Sampler)
    still = [
        sampler and group["temperature"] == 0 < optimiser.defaults["temperature"] for group in optimiser.param_groups
    ]
    return LambdaLR(optimiser, [resting if one else moving for one in still])


def rate(step: int, config: Schedule, steps_per_epoch: int, steps: int) -> float:
    r"""Return the multiple of the learning rate at a step t of T, counted from 0.

    Warm-up over w steps multiplies by min(1, (t + 1) / w). Then, by name: 1; factor to the number of
    epochs in ``at`` that have begun; or the cosine
    :math:`f + (1 - f) \frac12 (1 + \cos(\pi \frac{t - w}{T - w}))` with the final multiple f. ``CyclicalRate`` has
    no warm-up.

    Example:
        >>> step = Schedule(name="step", at=[1, 2], factor=0.1)
        >>> [round(rate(t, step, steps_per_epoch=2, steps=6), 3) for t in range(6)]
        [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]
    """
    if cycles := build_cycles(config, steps):
        return cycles(step)
    warmup = round(config.warmup * steps_per_epoch)
    value = min(1.0, (step + 1) / warmup) if warmup else 1.0
    if config.name == "step":
        value *= config.factor ** sum(step >= round(epoch * steps_per_epoch) for epoch in config.at)
    if config.name == "cosine" and step >= warmup:
        share = min(1.0, (step - warmup) / max(1, steps - warmup))
        value *= config.final + (1 - config.final) * 0.5 * (1 + math.cos(math.pi * share))
    return value


def build_cycles(config: Schedule, steps: int) -> CyclicalRate | None:
    """Return the cycles of a cyclical schedule; None for another one."""
    return CyclicalRate(steps, config.cycles, config.exploration) if config.name == "cyclical" else None


def switch_noise(optimiser: Any, on: bool) -> None:
    """Switch the noise of a sampler, which Accelerate may have wrapped; other optimisers have none."""
    sampler = getattr(optimiser, "optimizer", optimiser)
    if isinstance(sampler, Sampler):
        sampler.switch_noise(on)


def restore_schedule(schedule: LambdaLR, state: dict[str, Any]) -> None:
    """Take up where ``state`` left off, with the rates of this schedule: it may be longer than the one of ``state``."""
    schedule.load_state_dict(state)
    rates = [
        base * multiple(schedule.last_epoch)
        for base, multiple in zip(schedule.base_lrs, schedule.lr_lambdas, strict=True)
    ]
    for group, own in zip(schedule.optimizer.param_groups, rates, strict=True):
        group["lr"] = own
    schedule._last_lr = rates
