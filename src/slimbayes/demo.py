"""The demonstration: a trained network, and what every method makes of it.

The network is trained on scikit-learn's handwritten digits. Each method starts from it, and is scored on clean digits,
on corrupted ones, and on images that are no digits.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import slimbayes as sb
from slimbayes._checks import check_choice, check_count
from slimbayes._files import write_json
from slimbayes._provenance import provenance
from slimbayes._text_table import aligned, as_markdown
from slimbayes.data._bundled import load_digits_set
from slimbayes.data.dataset import ExampleSource
from slimbayes.data.digits import load_digits
from slimbayes.evaluation.evaluating import evaluate
from slimbayes.evaluation.record import FILE
from slimbayes.evaluation.settings import Settings
from slimbayes.evaluation.subject import Subject
from slimbayes.methods.registry import Method, get_method
from slimbayes.metrics.spread import standard_error
from slimbayes.shifts.shift import check_severity

__all__ = [
    "DRAWS",
    "MEMBERS",
    "METHODS",
    "TRAINED",
    "TRAINING",
    "finish",
    "make",
    "network",
    "run",
    "table",
    "train",
    "trained_network",
]


MEMBERS = 4

#: Title and options, as ``reproductions.demo_choice`` found them best on the validation digits.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("the trained network", {}),
    "temperature": ("with a temperature", {}),
    "mc_dropout": ("MC dropout", {"rate": 0.05, "lr": 0.002}),
    "deep_ensemble": ("deep ensemble", {}),
    "batch_ensemble": ("BatchEnsemble", {"init_spread": 0.3, "lr": 0.002}),
    "rank1": ("rank-1 normal", {"dropout_rate": 0.05, "prior_std": 0.15, "lr": 0.002}),
    "rank1_cauchy": ("rank-1 Cauchy", {"dropout_rate": 1e-06, "prior_std": 0.1, "lr": 0.0005}),
    "mean_field": ("mean-field", {"prior_std": 0.02, "init_std": 0.03, "lr": 0.002}),
    "k_tied": ("2-tied", {"prior_std": 0.02, "init_std": 0.03, "lr": 0.002}),
    "swag": ("SWAG", {"lr": 0.002, "weight_decay": 1.0}),
    "subspace": ("subspace inference", {"temperature": 100.0}),
    "sgmcmc": ("SGHMC over weights", {"temperature": 0.1, "prior_std": 1.0}),
    "sgmcmc_factors": ("SGHMC over factors", {"temperature": 0.01, "prior_std": 0.3}),
    "laplace": ("Laplace, last layer", {"prior_precision": 1000.0}),
}
#: Options that are not the method's own but say how it trains.
TRAINING = {"lr": 0.002, "weight_decay": 0.1, "temperature": 1.0}

#: Passes over the training digits that make the trained network.
TRAINED = 40
#: Passes of methods that do not go on from it for as long as all others do.
_EPOCHS = {"plain": 0, "temperature": 0, "laplace": 0, "deep_ensemble": TRAINED}

#: The method's name in the registry, where it is another one than here, and the options that are not chosen.
_METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("deterministic", {}),
    "temperature": ("deterministic", {}),
    "mc_dropout": ("mc_dropout", {"trained": True}),
    "deep_ensemble": ("deep_ensemble", {"members": MEMBERS}),
    "batch_ensemble": ("batch_ensemble", {"members": MEMBERS, "trained": True}),
    "rank1": ("rank1", {"members": MEMBERS, "trained": True}),
    "rank1_cauchy": ("rank1", {"members": MEMBERS, "family": "cauchy", "clip": 10.0, "trained": True}),
    "mean_field": ("mean_field", {"estimator": "flipout", "trained": True}),
    "k_tied": ("k_tied", {"k": 2, "estimator": "local", "trained": True}),
    "sgmcmc": ("sgmcmc", {"members": MEMBERS}),
    "sgmcmc_factors": ("sgmcmc", {"members": MEMBERS, "over": "factors"}),
}


def _method(name: str) -> tuple[Method, dict[str, Any]]:
    stored, options = _METHODS.get(name, (name, {}))
    return get_method(stored), options


def make(method: str, options: dict[str, Any], net: nn.Module) -> tuple[sb.BayesianModel, dict[str, Any]]:
    """Return the model to train, and how to train it.

    Args:
        method: A name in ``METHODS``.
        options: Its own options, and those in ``TRAINING``.
        net: The trained network.
    """
    training = {name: options.get(name, default) for name, default in TRAINING.items()}
    known, fixed = _method(method)
    if known.after_training:
        return sb.deterministic(net), training
    build = network if known.plain_members else partial(deepcopy, net)  # members of an ensemble start by themselves
    return known.make(build if known.of_networks else net, **fixed, **_own(known, options)), training


def _own(method: Method, options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in method.options or name not in TRAINING}


@lru_cache(maxsize=4)
def trained_network(seed: int) -> nn.Module:
    """Return the network that all methods start from, trained for ``TRAINED`` epochs; not to be changed."""
    torch.manual_seed(seed)
    model = sb.deterministic(network())
    train(model, load_digits().train, TRAINED, seed, **TRAINING)
    return model.member(0)


def network() -> nn.Module:
    """Return the small convolutional network, with random weights."""
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


def finish(
    method: str, elbo: sb.ELBO, data: tuple[Tensor, Tensor], options: dict[str, Any], seed: int
) -> sb.BayesianModel:
    """Do what a method does after training, and return the model to score."""
    known, fixed = _method(method)
    if known.after_training:
        return known.make(elbo.model.member(0), [data], **fixed, **_own(known, options))
    if method in _BY_HAND:
        return _BY_HAND[method](elbo.model)
    if known.finish is not None:
        known.finish(elbo, [data], draws=DRAWS, inference="ess", seed=seed, quiet=True)
    return elbo.model


def _with_a_temperature(model: sb.BayesianModel) -> sb.BayesianModel:
    """Return the network with its logits over the temperature that the validation digits choose."""
    images, labels = load_digits().validation
    scaling = sb.TemperatureScaling().fit(model.predict(images, likelihood="categorical"), labels)
    scaled = model.member(0)
    *_, last = scaled.children()
    with torch.no_grad():
        for parameter in last.parameters():
            parameter.div_(scaling.temperature)
    return sb.deterministic(scaled)


#: What the demo does itself after training, where no method of the registry does.
_BY_HAND = {"temperature": _with_a_temperature}


def _optimiser(model: sb.BayesianModel, num_data: int, lr: float, weight_decay: float, temperature: float) -> Optimizer:
    if get_method(model.method).sampled:
        return sb.chain_sampler(model, num_data, lr=0.05, temperature=temperature)
    return torch.optim.AdamW(model.param_groups(weight_decay=weight_decay), lr=lr)


def _let_the_base_rest(model: sb.BayesianModel, optimiser: Optimizer) -> None:
    """Stop moving what chains over factors share: the kept samples will be used with the final base."""
    if get_method(model.method).sampled:
        for group in optimiser.param_groups:
            if group["temperature"] == 0:
                group["lr"] = 0.0


SCORES = ("nll", "accuracy", "ece")

SEVERITIES = (1, 2, 3, 4, 5)
SLOWEST = ("deep_ensemble", "sgmcmc", "k_tied", "mean_field", "rank1_cauchy", "rank1", "sgmcmc_factors")


def one_run(
    method: str,
    options: dict[str, Any],
    seed: int,
    epochs: int,
    part: str,
    folder: Path | None = None,
    severities: Sequence[int] = SEVERITIES,
) -> dict[str, Any]:
    """Let one method start from a trained network, on one thread, and score it; its evaluation goes into the folder."""
    torch.set_num_threads(1)
    data = load_digits_set(Path())
    net = trained_network(seed)
    torch.manual_seed(seed)
    model, training = make(method, options, net)
    start = time.perf_counter()
    elbo, history = train(model, _all_of(data.train), _EPOCHS.get(method, epochs), seed, **training)
    model = finish(method, elbo, _all_of(data.train), options, seed)
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
        "foreign": {"auroc": found.result()["ood"]["photos"]["measures"]["entropy"]["auroc"]},
    }


def _all_of(examples: ExampleSource) -> tuple[Tensor, Tensor]:
    (images,), labels = examples.fetch(torch.arange(len(examples)))
    return images, labels


def run(
    methods: Sequence[str] | None = None,
    seeds: int = 3,
    epochs: int = 10,
    part: str = "test",
    options: dict[str, dict[str, Any]] | None = None,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
    folder: Path | None = None,
    severities: Sequence[int] = SEVERITIES,
) -> dict[str, Any]:
    """Train and score methods on the digits, each from the trained network on.

    Args:
        methods: Names in ``METHODS``; None for all that can run with what is installed.
        seeds: Runs of each method, with seeds 0, 1, ...
        epochs: Passes over the training digits, beside the ``TRAINED`` ones that made the network.
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
    methods = list(METHODS) if methods is None else methods
    for method in methods:
        check_choice("methods", method, METHODS)
    chosen = {method: METHODS[method][1] for method in methods} | (options or {})
    needed = {method: make(method, chosen[method], network())[0].needed for method in methods}
    # Snapshots are taken in the second half of training.
    if short := [method for method in methods if needed[method] > epochs - epochs // 2]:
        enough = 2 * max(needed.values()) - 1
        raise ValueError(
            f"Expected argument `epochs` to be at least {enough}, but got {epochs}: {', '.join(short)} cannot "
            "do with fewer. Train longer, or leave these methods out."
        )
    jobs = [
        (method, chosen[method], seed, epochs, part, _own_folder(folder, method, seed), severities)
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


def _own_folder(folder: Path | None, method: str, seed: int) -> Path | None:
    if folder is None:
        return None
    own = folder / f"{method}-seed{seed}"
    own.mkdir(parents=True, exist_ok=True)
    return own


def _in_parallel(jobs: list[tuple[Any, ...]], workers: int) -> Iterator[dict[str, Any]]:
    if workers == 1:
        yield from (one_run(*job) for job in jobs)
        return
    # Forked copies of a process that has used torch's threads may hang.
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for future in as_completed([pool.submit(one_run, *job) for job in jobs]):
            yield future.result()


COLUMNS = [
    ("NLL", "clean", "nll", 3, min),
    ("accuracy", "clean", "accuracy", 3, max),
    ("ECE", "clean", "ece", 3, min),
    ("cNLL", "corrupted", "nll", 3, min),
    ("c-accuracy", "corrupted", "accuracy", 3, max),
    ("cECE", "corrupted", "ece", 3, min),
    ("AUROC", "foreign", "auroc", 3, max),
]


def table(results: dict[str, Any], markdown: bool = False) -> str:
    """Return the results as text.

    Args:
        results: What ``run`` returned.
        markdown: Write a Markdown table instead of aligned columns.
    """
    by_title: dict[str, list[dict[str, Any]]] = {}
    for result in results["results"]:
        by_title.setdefault(result["title"], []).append(result)
    cells = {
        title: [_mean_and_error([run[part][name] for run in runs]) for _, part, name, _, _ in COLUMNS]
        for title, runs in by_title.items()
    }
    best = [better(row[i][0] for row in cells.values()) for i, (*_, better) in enumerate(COLUMNS)]
    rows = [["method", *(column[0] for column in COLUMNS), "stored numbers", "seconds"]]
    for title, runs in by_title.items():
        row = [title]
        for i, (value, error) in enumerate(cells[title]):
            text = f"{value:.3f}" + ("" if error is None else f" ± {error:.3f}")
            row.append(text + (" *" if value == best[i] and len(by_title) > 1 else ""))
        seconds = sum(run["seconds"] for run in runs) / len(runs)
        rows.append([*row, f"{runs[0]['stored_numbers']:,}", f"{seconds:.1f}"])
    if markdown:
        return as_markdown(rows)
    seeds, severities = results["settings"]["seeds"], results["settings"].get("severities", range(1, 6))
    note = (
        f"Handwritten digits, {results['settings']['part']} part; c: mean over 5 corruptions at severities "
        f"{', '.join(map(str, severities))}; AUROC: foreign images told from digits by their entropy; "
        f"{seeds} seed{'s' if seeds > 1 else ''}, ± standard error; * best; seconds after the network was trained."
    )
    return f"{aligned(rows)}\n{note}"


def _mean_and_error(values: list[float]) -> tuple[float, float | None]:
    return mean(values), standard_error(values)
