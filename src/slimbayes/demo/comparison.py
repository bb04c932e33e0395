"""Train each method on the digits and score it, clean and corrupted."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

import torch
from torch import Tensor, nn

import slimbayes as sb
from slimbayes._checks import check_choice, check_count
from slimbayes.demo.digits import CORRUPTIONS, corrupt, load_digits
from slimbayes.provenance import provenance

__all__ = ["METHODS", "run"]

#: Title and options, as ``slimbayes.demo.choose`` found them best on the validation digits.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("the plain network", {"weight_decay": 0.1}),
    "batch_ensemble": ("BatchEnsemble", {"init_spread": 1.0, "weight_decay": 0.1}),
    "rank1": ("rank-1 normal", {"family": "normal", "init_spread": 1.0, "weight_decay": 0.1, "prior_std": 0.3}),
    "rank1_cauchy": (
        "rank-1 Cauchy",
        {"family": "cauchy", "init_spread": 0.1, "weight_decay": 0.0, "prior_std": 0.01, "dropout_rate": 1e-6},
    ),
}
MEMBERS = 4
BATCH = 100
#: Samples of each member at test time, for methods that sample.
SAMPLES = 4


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


def convert(method: str, net: nn.Module, weight_decay: float = 0.0, **options: Any) -> tuple[nn.Module, float]:
    """Return what a method trains, and the weight decay of its base."""
    if method == "plain":
        return net, weight_decay
    make = sb.batch_ensemble if method == "batch_ensemble" else sb.rank1
    return make(net, MEMBERS, **options), weight_decay


def train(
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    epochs: int,
    seed: int,
    weight_decay: float,
) -> None:
    """Train with Adam; the plain network on cross-entropy, a Bayesian model on the ELBO."""
    images, labels = data
    generator = torch.Generator().manual_seed(seed)
    elbo, groups = None, [{"params": list(model.parameters()), "weight_decay": weight_decay}]
    if isinstance(model, sb.BayesianModel):
        steps = epochs * -(-len(images) // BATCH)
        elbo = sb.ELBO(model, num_data=len(images), beta=sb.linear_annealing(2 * steps // 3))
        groups = model.param_groups(weight_decay=weight_decay)
    optimiser = torch.optim.AdamW(groups, lr=2e-3)
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(images), generator=generator).split(BATCH):
            outputs = model(images[rows])
            loss = nn.functional.cross_entropy(outputs, labels[rows]) if elbo is None else elbo(outputs, labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if elbo is not None:
                elbo.step()


def log_probs(model: nn.Module, images: Tensor) -> Tensor:
    """Return the predictive log-probabilities, of the mixture where there are draws."""
    if isinstance(model, sb.BayesianModel):
        return model.predict(images, samples=SAMPLES, seed=0).log_probs
    model.eval()
    with torch.no_grad():
        return model(images).log_softmax(1)


def scores(model: nn.Module, images: Tensor, labels: Tensor) -> dict[str, float]:
    """Return NLL, accuracy and ECE."""
    logs = log_probs(model, images)
    return {
        "nll": sb.metrics.negative_log_likelihood(logs, labels).item(),
        "accuracy": sb.metrics.accuracy(logs.exp(), labels).item(),
        "ece": sb.metrics.expected_calibration_error(logs.exp(), labels).item(),
    }


def evaluate(model: nn.Module, images: Tensor, labels: Tensor) -> dict[str, dict[str, float]]:
    """Return the scores on clean images, and their mean over corruptions and severities."""
    corrupted = [scores(model, corrupt(images, kind, s), labels) for kind in CORRUPTIONS for s in range(1, 6)]
    mean = {name: sum(one[name] for one in corrupted) / len(corrupted) for name in corrupted[0]}
    return {"clean": scores(model, images, labels), "corrupted": mean}


def one_run(method: str, options: dict[str, Any], seed: int, epochs: int, part: str) -> dict[str, Any]:
    """Train one method with one seed, on one thread, and score it."""
    torch.set_num_threads(1)
    digits = load_digits()
    torch.manual_seed(seed)
    model, weight_decay = convert(method, network(), **options)
    start = time.perf_counter()
    train(model, digits.train, epochs, seed, weight_decay)
    seconds = time.perf_counter() - start
    result = {"method": method, "title": METHODS[method][0], "seed": seed, "parameters": sb.count_parameters(model)}
    return {**result, "seconds": seconds, **evaluate(model, *getattr(digits, part))}


def run(
    methods: Sequence[str] = tuple(METHODS),
    seeds: int = 3,
    epochs: int = 40,
    part: str = "test",
    options: dict[str, dict[str, Any]] | None = None,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Train and score methods on the digits.

    Args:
        methods: Names in ``METHODS``.
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
    for method in methods:
        check_choice("methods", method, METHODS)
    chosen = {method: METHODS[method][1] for method in methods} | (options or {})
    # The slowest methods come last in METHODS; started first, they leave no worker idle at the end.
    jobs = [(method, chosen[method], seed, epochs, part) for method in reversed(methods) for seed in range(seeds)]
    results = []
    progress(0, len(jobs))
    for result in _in_parallel(jobs, min(workers, len(jobs))):
        results.append(result)
        progress(len(results), len(jobs))
    results.sort(key=lambda result: (list(methods).index(result["method"]), result["seed"]))
    settings = {
        "methods": {method: chosen[method] for method in methods},
        "members": MEMBERS,
        "samples": SAMPLES,
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
