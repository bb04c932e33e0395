"""What the demo compares: every method on one small convolutional network, with the options that validation chose."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from torch import nn

import slimbayes as sb

__all__ = ["MEMBERS", "METHODS", "TRAINING", "available", "make", "network"]

MEMBERS = 4

#: Title and options, as ``slimbayes.demo.choose`` found them best on the validation digits.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("the plain network", {"weight_decay": 0.1}),
    "mc_dropout": ("MC dropout", {"rate": 0.1, "weight_decay": 0.1}),
    "deep_ensemble": ("deep ensemble", {"weight_decay": 0.1}),
    "batch_ensemble": ("BatchEnsemble", {"init_spread": 2.0, "weight_decay": 0.1}),
    "rank1": ("rank-1 normal", {"init_spread": 1.0, "weight_decay": 0.1, "prior_std": 1.0}),
    "rank1_cauchy": ("rank-1 Cauchy", {"init_spread": 0.1, "weight_decay": 0.0, "prior_std": 0.01}),
    "mean_field": ("mean-field", {"prior_std": 3.0}),
    "k_tied": ("2-tied", {"prior_std": 3.0}),
    "swag": ("SWAG", {"lr": 0.01, "weight_decay": 1.0}),
    "subspace": ("subspace inference", {"temperature": 10.0}),
    "sgmcmc": ("SGHMC over weights", {"temperature": 0.1, "prior_std": 3.0}),
    "sgmcmc_factors": ("SGHMC over factors", {"temperature": 0.1, "prior_std": 0.1}),
    "laplace": ("Laplace, last layer", {"prior_precision": 1000.0}),
}
#: Options that are not the method's own but say how it trains.
TRAINING = {"lr": 0.002, "weight_decay": 0.1, "temperature": 1.0}

Build = Callable[[], nn.Module]
_MAKERS: dict[str, Callable[..., sb.BayesianModel]] = {
    "plain": lambda build: sb.deterministic(build()),
    "mc_dropout": lambda build, **options: sb.mc_dropout(build(), **options),
    "deep_ensemble": lambda build: sb.deep_ensemble(build, MEMBERS),
    "batch_ensemble": lambda build, **options: sb.batch_ensemble(build(), MEMBERS, **options),
    "rank1": lambda build, **options: sb.rank1(build(), MEMBERS, **options),
    "rank1_cauchy": lambda build, **options: sb.rank1(build(), MEMBERS, "cauchy", dropout_rate=1e-6, **options),
    "mean_field": lambda build, **options: sb.mean_field(build(), estimator="flipout", **options),
    "k_tied": lambda build, **options: sb.k_tied(build(), k=2, estimator="local", **options),
    "swag": lambda build: sb.swag(build),
    "subspace": lambda build, temperature: sb.subspace(build, temperature=temperature),
    "sgmcmc": lambda build, **options: sb.sgmcmc(build, MEMBERS, **options),
    "sgmcmc_factors": lambda build, **options: sb.sgmcmc(build, MEMBERS, over="factors", **options),
    "laplace": lambda build, prior_precision: sb.deterministic(build()),  # made Bayesian after training
}


def available() -> list[str]:
    """Return the methods that can run with what is installed."""
    return [method for method in METHODS if method != "laplace" or find_spec("laplace") is not None]


def make(method: str, options: dict[str, Any]) -> tuple[sb.BayesianModel, dict[str, Any]]:
    """Return the model to train, and how to train it.

    Args:
        method: A name in ``METHODS``.
        options: Its own options, and those in ``TRAINING``.
    """
    training = {name: options.get(name, default) for name, default in TRAINING.items()}
    shared = {"temperature"} if method == "subspace" else set()
    own = {name: value for name, value in options.items() if name not in TRAINING or name in shared}
    return _MAKERS[method](network, **own), training


def network() -> nn.Module:
    """Return the small convolutional network that all methods start from."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
