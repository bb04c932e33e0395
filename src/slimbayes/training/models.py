"""Data, models and objectives from a configuration."""

import math
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

import slimbayes as sb
from slimbayes._checks import check_choice
from slimbayes.data.dataset import DataSet, Task
from slimbayes.data.registry import load_data
from slimbayes.likelihoods import LIKELIHOODS, get_likelihood
from slimbayes.likelihoods.registry import options_of
from slimbayes.methods.registry import get_method, trained_methods
from slimbayes.model import BayesianModel
from slimbayes.objective import ELBO
from slimbayes.schedules import Schedule
from slimbayes.training.config import Annealing, Method, TrainConfig

#: The likelihoods that can be asked for, by that of the data's task.
FITTING = {
    "categorical": ("categorical", "ordinal", "bernoulli"),
    "bernoulli": ("bernoulli", "categorical", "gaussian"),
    "gaussian": ("gaussian", "student_t"),
    "poisson": ("poisson", "negative_binomial"),
}

__all__ = ["build_model", "build_objective", "check_method", "configured_data", "network_task"]


def configured_data(config: TrainConfig, folder: str | os.PathLike[str] | None = None) -> DataSet:
    """Return the data of a run.

    Args:
        config: The run.
        folder: Where the data sets are, if not where the configuration says.

    Example:
        >>> len(configured_data(TrainConfig(data={"name": "iris", "train_limit": 20}, net="mlp")).train)
        20
    """
    data = load_data(config.data.name, folder or config.data.folder, **config.data.options)
    return data.limited(config.data.train_limit, config.data.evaluation_limit)


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
    """Return the likelihood's name, or its name and options; raise if it has other ones, or does not fit the task."""
    spec = task.likelihood if config.likelihood is None else config.likelihood
    options = {} if isinstance(spec, str) else {"name": task.likelihood, **spec}
    name = spec if isinstance(spec, str) else options["name"]
    check_choice("likelihood.name", name, LIKELIHOODS)
    check_choice(f"likelihood.name of a {task.likelihood} task", name, FITTING[task.likelihood])
    for option in options:
        check_choice("likelihood", option, ["name", *options_of(name)])
    if name == "ordinal":
        options = {"name": name, "levels": task.outputs, **options}
    return options or name


def network_task(config: TrainConfig, task: Task) -> Task:
    """Return the task as the network sees it: with predicted noise, say, it returns two numbers for each target.

    Example:
        >>> config = TrainConfig(data="diabetes", net="mlp", likelihood={"name": "gaussian", "noise": "predicted"})
        >>> network_task(config, Task("gaussian", 1, (10,))).outputs
        2
    """
    return replace(task, outputs=get_likelihood(likelihood_of(config, task)).outputs_for(task.outputs))


def annealing(config: Annealing, steps: int) -> float | Schedule:
    """Return the weight of the KL."""
    if config.name == "none":
        return 1.0
    if config.name == "linear":
        return sb.linear_annealing(max(1, math.ceil(config.fraction * steps)))
    return sb.stepwise_annealing(config.slope, config.every)
