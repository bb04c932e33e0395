"""Models and objectives from a configuration."""

import inspect
import math
from collections.abc import Callable
from typing import Any

from torch import nn

import slimbayes as sb
from slimbayes._checks import check_choice
from slimbayes.data.dataset import Task
from slimbayes.model import BayesianModel
from slimbayes.objective import ELBO
from slimbayes.schedules import Schedule
from slimbayes.training.config import Annealing, Method, TrainConfig

__all__ = ["METHODS", "build_model", "build_objective"]

#: Methods that turn one network into a model which trains on the ELBO.
METHODS: dict[str, Callable[..., BayesianModel]] = {
    "deterministic": sb.deterministic,
    "rank1": sb.rank1,
    "batch_ensemble": sb.batch_ensemble,
    "mean_field": sb.mean_field,
    "k_tied": sb.k_tied,
}


def build_model(config: Method, net: nn.Module) -> BayesianModel:
    """Return the network made Bayesian.

    Example:
        >>> build_model(Method(name="rank1", members=2), nn.Linear(3, 2)).members
        2
    """
    check_choice("method.name", config.name, METHODS)
    method = METHODS[config.name]
    known = [name for name in inspect.signature(method).parameters if name != "net"]
    for option in config.options:
        check_choice("method", option, known)
    return method(net, **config.options)


def build_objective(config: TrainConfig, model: BayesianModel, task: Task, num_data: int, steps: int) -> ELBO:
    """Return the ELBO, with the likelihood that the task asks for unless the configuration has its own.

    Args:
        config: The run.
        model: Is given the likelihood.
        task: What is predicted.
        num_data: Training examples.
        steps: Optimiser steps of the whole run.
    """
    likelihood: Any = task.likelihood if config.likelihood is None else config.likelihood
    beta = annealing(config.annealing, steps)
    return ELBO(model, num_data, likelihood, config.objective, beta, config.member_kl)


def annealing(config: Annealing, steps: int) -> float | Schedule:
    """Return the weight of the KL."""
    if config.name == "none":
        return 1.0
    if config.name == "linear":
        return sb.linear_annealing(max(1, math.ceil(config.fraction * steps)))
    return sb.stepwise_annealing(config.slope, config.every)
