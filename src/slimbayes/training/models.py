"""Models and objectives from a configuration."""

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

import slimbayes as sb
from slimbayes._checks import check_choice
from slimbayes.data.dataset import Task
from slimbayes.likelihoods import LIKELIHOODS
from slimbayes.methods.registry import get_method, trained_methods
from slimbayes.model import BayesianModel
from slimbayes.objective import ELBO
from slimbayes.schedules import Schedule
from slimbayes.training.config import Annealing, Method, TrainConfig

__all__ = ["build_model", "build_objective", "check_method", "network_task"]


def build_model(config: Method, build: Callable[[], nn.Module]) -> BayesianModel:
    """Return a network made Bayesian, or as many as the method has members.

    Args:
        config: The method.
        build: Builds a network.

    Example:
        >>> build_model(Method(name="rank1", members=2), lambda: nn.Linear(3, 2)).members
        2
    """
    check_method(config)
    method = get_method(config.name)
    return method.make(build if method.of_networks else build(), **config.options)


def check_method(config: Method) -> None:
    """Raise unless there are such a method and such options."""
    check_choice("method.name", config.name, trained_methods())
    get_method(config.name).check_options(config.options)


def build_objective(config: TrainConfig, model: BayesianModel, task: Task, num_data: int, steps: int) -> ELBO:
    """Return the ELBO, with the likelihood that the task asks for unless the configuration has its own.

    Args:
        config: The run.
        model: Is given the likelihood.
        task: What is predicted.
        num_data: Training examples.
        steps: Optimiser steps of the whole run.
    """
    beta = annealing(config.annealing, steps)
    return ELBO(model, num_data, likelihood_of(config, task), config.objective, beta, config.member_kl)


def likelihood_of(config: TrainConfig, task: Task) -> Any:
    """Return the likelihood's name, or its name and options; raise if it has other ones."""
    spec = task.likelihood if config.likelihood is None else config.likelihood
    if isinstance(spec, str):
        return spec
    spec = {"name": task.likelihood, **spec}
    check_choice("likelihood.name", spec["name"], LIKELIHOODS)
    known = ["name", *inspect.signature(LIKELIHOODS[spec["name"]]).parameters]
    for option in spec:
        check_choice("likelihood", option, known)
    return spec


def network_task(config: TrainConfig, task: Task) -> Task:
    """Return the task as the network sees it: with predicted noise it returns two numbers for each target.

    Example:
        >>> config = TrainConfig(data="diabetes", net="mlp", likelihood={"name": "gaussian", "noise": "predicted"})
        >>> network_task(config, Task("gaussian", 1, (10,))).outputs
        2
    """
    spec = likelihood_of(config, task)
    predicted = isinstance(spec, dict) and spec.get("noise") == "predicted"
    return replace(task, outputs=2 * task.outputs) if predicted else task


def annealing(config: Annealing, steps: int) -> float | Schedule:
    """Return the weight of the KL."""
    if config.name == "none":
        return 1.0
    if config.name == "linear":
        return sb.linear_annealing(max(1, math.ceil(config.fraction * steps)))
    return sb.stepwise_annealing(config.slope, config.every)
