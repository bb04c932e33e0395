"""Train each method on the digits and score it, clean and corrupted."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

import torch
from torch import Tensor

import slimbayes as sb
from slimbayes._checks import check_choice, check_count
from slimbayes.demo.contenders import MEMBERS, METHODS, available, make
from slimbayes.demo.digits import CORRUPTIONS, corrupt, load_digits
from slimbayes.demo.training import DRAWS, finish, train
from slimbayes.provenance import provenance

__all__ = ["run"]

#: Methods whose members are points: further samples of them would be the same.
ONE_DRAW = ("deterministic", "deep_ensemble", "batch_ensemble")
SLOWEST = ("rank1_cauchy", "rank1", "batch_ensemble", "sgmcmc_factors")


def log_probs(model: sb.BayesianModel, images: Tensor) -> Tensor:
    """Return the predictive log-probabilities of the mixture over draws."""
    samples = 1 if model.method in ONE_DRAW else DRAWS // model.members
    return model.predict(images, samples=samples, seed=0).log_probs


def scores(model: sb.BayesianModel, images: Tensor, labels: Tensor) -> dict[str, float]:
    """Return NLL, accuracy and ECE."""
    logs = log_probs(model, images)
    return {
        "nll": sb.metrics.negative_log_likelihood(logs, labels).item(),
        "accuracy": sb.metrics.accuracy(logs.exp(), labels).item(),
        "ece": sb.metrics.expected_calibration_error(logs.exp(), labels).item(),
    }


def evaluate(model: sb.BayesianModel, images: Tensor, labels: Tensor) -> dict[str, dict[str, float]]:
    """Return the scores on clean images, and their mean over corruptions and severities."""
    corrupted = [scores(model, corrupt(images, kind, s), labels) for kind in CORRUPTIONS for s in range(1, 6)]
    mean = {name: sum(one[name] for one in corrupted) / len(corrupted) for name in corrupted[0]}
    return {"clean": scores(model, images, labels), "corrupted": mean}


def one_run(method: str, options: dict[str, Any], seed: int, epochs: int, part: str) -> dict[str, Any]:
    """Train one method with one seed, on one thread, and score it."""
    torch.set_num_threads(1)
    digits = load_digits()
    torch.manual_seed(seed)
    model, training = make(method, options)
    start = time.perf_counter()
    elbo = train(model, digits.train, epochs, seed, **training)
    model = finish(method, elbo, digits.train, options)
    seconds = time.perf_counter() - start
    result = {"method": method, "title": METHODS[method][0], "seed": seed, "stored_numbers": stored_numbers(model)}
    return {**result, "seconds": seconds, **evaluate(model, *getattr(digits, part))}


def stored_numbers(model: sb.BayesianModel) -> int:
    """Return how many numbers a saved model has: parameters, and what a law has collected."""
    return sum(value.numel() for value in model.state_dict().values() if value.is_floating_point())


def run(
    methods: Sequence[str] | None = None,
    seeds: int = 3,
    epochs: int = 40,
    part: str = "test",
    options: dict[str, dict[str, Any]] | None = None,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Train and score methods on the digits.

    Args:
        methods: Names in ``METHODS``; None for all that can run with what is installed.
        seeds: Runs of each method, with seeds 0, 1, ...
        epochs: Passes over the training digits.
        part: Score on ``"test"``, or on ``"validation"`` to choose options.
        options: By method, options to use instead of the chosen ones.
        workers: Processes to run side by side.
        progress: Called with the runs done and the runs in all.

    Returns:
        JSON values: the settings, provenance, and one result for each method and seed.
    """
    check_count("seeds", seeds)
    check_count("epochs", epochs)
    check_count("workers", workers)
    check_choice("part", part, ("test", "validation"))
    methods = available() if methods is None else methods
    for method in methods:
        check_choice("methods", method, METHODS)
        if method not in available():
            raise ImportError(f"The method {method} needs laplace-torch: pip install laplace-torch")
    chosen = {method: METHODS[method][1] for method in methods} | (options or {})
    jobs = [(method, chosen[method], seed, epochs, part) for method in methods for seed in range(seeds)]
    jobs.sort(key=lambda job: job[0] not in SLOWEST)  # started first, they leave no worker idle at the end
    results = []
    progress(0, len(jobs))
    for result in _in_parallel(jobs, min(workers, len(jobs))):
        results.append(result)
        progress(len(results), len(jobs))
    results.sort(key=lambda result: (list(methods).index(result["method"]), result["seed"]))
    settings = {
        "methods": {method: chosen[method] for method in methods},
        "members": MEMBERS,
        "draws": DRAWS,
        "seeds": seeds,
        "epochs": epochs,
        "part": part,
        "workers": workers,
    }
    return {"settings": settings, **provenance(), "results": results}


def _in_parallel(jobs: list[tuple[Any, ...]], workers: int) -> Iterator[dict[str, Any]]:
    if workers == 1:
        yield from (one_run(*job) for job in jobs)
        return
    # Forked copies of a process that has used torch's threads may hang.
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for future in as_completed([pool.submit(one_run, *job) for job in jobs]):
            yield future.result()
