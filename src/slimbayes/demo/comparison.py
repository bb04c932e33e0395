"""Train each method on the digits and score it, clean and corrupted."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slimbayes._checks import check_choice, check_count
from slimbayes._files import write_json
from slimbayes._provenance import provenance
from slimbayes.data.bundled import load_digits_set
from slimbayes.data.dataset import ExampleSource
from slimbayes.demo.contenders import MEMBERS, METHODS, available, make
from slimbayes.demo.training import DRAWS, finish, train
from slimbayes.evaluation.evaluating import evaluate
from slimbayes.evaluation.record import FILE
from slimbayes.evaluation.settings import Settings
from slimbayes.evaluation.subject import Subject
from slimbayes.shifts.base import check_severity

__all__ = ["run"]

SCORES = ("nll", "accuracy", "ece")
SEVERITIES = (1, 2, 3, 4, 5)
#: Methods that need two snapshots, which are taken in the second half of training.
COLLECTING, ENOUGH_EPOCHS = ("swag", "subspace"), 3
SLOWEST = ("rank1_cauchy", "rank1", "batch_ensemble", "sgmcmc_factors")


def one_run(
    method: str,
    options: dict[str, Any],
    seed: int,
    epochs: int,
    part: str,
    folder: Path | None = None,
    severities: Sequence[int] = SEVERITIES,
) -> dict[str, Any]:
    """Train one method with one seed, on one thread, and score it; the whole evaluation goes into the folder."""
    torch.set_num_threads(1)
    data = load_digits_set(Path())
    torch.manual_seed(seed)
    model, training = make(method, options)
    start = time.perf_counter()
    elbo, history = train(model, _all_of(data.train), epochs, seed, **training)
    model = finish(method, elbo, _all_of(data.train), options)
    seconds = time.perf_counter() - start
    if part == "validation":
        data = replace(data, test=data.validation)
    subject = Subject(model.eval(), data, f"{method}-seed{seed}", METHODS[method][0], seed, training=history)
    samples = 1 if subject.is_point else DRAWS // model.members
    settings = Settings(samples=(samples,), severities=tuple(severities), ood=("photos",), resamples=200)
    (found,) = evaluate([subject], settings)
    if folder is not None:
        write_json(folder / FILE, found.content)
    clean, corrupted = found.clean(), found.result()["summary"]["mean"]
    return {
        "method": method,
        "title": subject.title,
        "seed": seed,
        "stored_numbers": subject.stored_numbers,
        "seconds": seconds,
        "clean": {name: clean[name] for name in SCORES},
        "corrupted": {name: corrupted[name] for name in SCORES},
    }


def _all_of(examples: ExampleSource) -> tuple[Tensor, Tensor]:
    (images,), labels = examples.fetch(torch.arange(len(examples)))
    return images, labels


def run(
    methods: Sequence[str] | None = None,
    seeds: int = 3,
    epochs: int = 40,
    part: str = "test",
    options: dict[str, dict[str, Any]] | None = None,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
    folder: Path | None = None,
    severities: Sequence[int] = SEVERITIES,
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
        folder: Where each run gets a folder with its whole evaluation, for a report; None for none.
        severities: Of the corruptions.

    Returns:
        JSON values: the settings, provenance, and one result for each method and seed.
    """
    check_count("seeds", seeds)
    check_count("epochs", epochs)
    check_count("workers", workers)
    check_choice("part", part, ("test", "validation"))
    for severity in severities:
        check_severity("severities", severity)
    methods = available() if methods is None else methods
    for method in methods:
        check_choice("methods", method, METHODS)
        if method not in available():
            raise ImportError(f"The method {method} needs laplace-torch: pip install laplace-torch")
    if epochs < ENOUGH_EPOCHS and (short := [method for method in methods if method in COLLECTING]):
        raise ValueError(
            f"Expected argument `epochs` to be at least {ENOUGH_EPOCHS}, but got {epochs}: {', '.join(short)} cannot "
            "do with fewer. Train longer, or leave these methods out."
        )
    chosen = {method: METHODS[method][1] for method in methods} | (options or {})
    jobs = [
        (method, chosen[method], seed, epochs, part, _place(folder, method, seed), severities)
        for method in methods
        for seed in range(seeds)
    ]
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
        "severities": list(severities),
        "workers": workers,
    }
    return {"settings": settings, **provenance(), "results": results}


def _place(folder: Path | None, method: str, seed: int) -> Path | None:
    if folder is None:
        return None
    place = folder / f"{method}-seed{seed}"
    place.mkdir(parents=True, exist_ok=True)
    return place


def _in_parallel(jobs: list[tuple[Any, ...]], workers: int) -> Iterator[dict[str, Any]]:
    if workers == 1:
        yield from (one_run(*job) for job in jobs)
        return
    # Forked copies of a process that has used torch's threads may hang.
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for future in as_completed([pool.submit(one_run, *job) for job in jobs]):
            yield future.result()
