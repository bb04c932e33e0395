"""Optimisers and learning rates from a configuration."""

import math
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from slimbayes.model import BayesianModel
from slimbayes.training.config import Optimiser, Schedule

__all__ = ["build_optimiser", "build_schedule", "rate", "restore_schedule"]


def build_optimiser(config: Optimiser, model: BayesianModel) -> Optimizer:
    """Return the optimiser; weight decay spares what has a KL.

    Example:
        >>> import slimbayes as sb
        >>> build_optimiser(Optimiser(name="sgd", lr=0.1), sb.rank1(torch.nn.Linear(3, 2))).defaults["nesterov"]
        True
    """
    groups = model.param_groups(config.lr, config.weight_decay, config.factor_lr)
    if config.name == "sgd":
        nesterov = config.nesterov and config.momentum > 0
        return torch.optim.SGD(groups, config.lr, config.momentum, nesterov=nesterov)
    kind = torch.optim.Adam if config.name == "adam" else torch.optim.AdamW
    return kind(groups, config.lr, config.betas)


def build_schedule(config: Schedule, optimiser: Optimizer, steps_per_epoch: int, steps: int) -> LambdaLR:
    """Return the learning rates of all groups, to be moved by each optimiser step."""
    return LambdaLR(optimiser, partial(rate, config=config, steps_per_epoch=steps_per_epoch, steps=steps))


def rate(step: int, config: Schedule, steps_per_epoch: int, steps: int) -> float:
    r"""Return the multiple of the learning rate at a step t of T, counted from 0.

    Warm-up over w steps multiplies by min(1, (t + 1) / w). Then, by name: 1; factor to the number of
    epochs in ``at`` that have begun; or the cosine
    :math:`f + (1 - f) \frac12 (1 + \cos(\pi \frac{t - w}{T - w}))` with the final multiple f.

    Example:
        >>> step = Schedule(name="step", at=[1, 2], factor=0.1)
        >>> [round(rate(t, step, steps_per_epoch=2, steps=6), 3) for t in range(6)]
        [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]
    """
    warmup = round(config.warmup * steps_per_epoch)
    value = min(1.0, (step + 1) / warmup) if warmup else 1.0
    if config.name == "step":
        value *= config.factor ** sum(step >= round(epoch * steps_per_epoch) for epoch in config.at)
    if config.name == "cosine" and step >= warmup:
        share = min(1.0, (step - warmup) / max(1, steps - warmup))
        value *= config.final + (1 - config.final) * 0.5 * (1 + math.cos(math.pi * share))
    return value


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
