"""Prediction as a service: latency and rows per second of one request after another, in every form."""

from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.interleaved import measure, ratios
from benchmarks.machine import load_average, load_warning, measuring
from benchmarks.networks import MEMBERS, NETWORKS, BenchNetwork, find_network
from benchmarks.service_forms import FORMS, MODULES, NotApplicable, Request, build_modules
from slimbayes._checks import check_choice, check_count, check_number
from slimbayes._provenance import provenance
from slimbayes._text_table import aligned, as_markdown

__all__ = [
    "BATCHES",
    "SERVED_NETWORKS",
    "WrongAnswer",
    "check_distribution",
    "check_same",
    "run_service",
    "service_table",
]


TOLERANCE = 1e-5
#: Requests of each side; of so many means, the largest deviation seldom exceeds so many standard errors.
REPEATS, STANDARD_ERRORS = 100, 7.0
#: Examples that are asked about so often.
FEW = 8


class WrongAnswer(Exception):  # noqa: N818
    """A form's probabilities are not the module's."""


def check_same(request: Request, expected: Request, x: Tensor) -> float:
    """Return the largest distance between two functions' probabilities, or raise if it exceeds 1e-5.

    Example:
        >>> check_same(lambda x: x, lambda x: x, torch.ones(2, 3))
        0.0
    """
    with torch.no_grad():
        distance = (request(x) - expected(x)).abs().max().item()
    if not distance <= TOLERANCE:
        raise WrongAnswer(f"its probabilities differ from the module's by {distance:.1e} at batch {len(x)}")
    return distance


def check_distribution(request: Request, expected: Request, x: Tensor) -> float:
    """Return the largest distance between two random functions' mean probabilities, in standard errors, or raise.

    Raises, too, if the first one's answers do not differ from request to request.

    Example:
        >>> noisy = lambda x: x + torch.randn(x.shape)
        >>> check_distribution(noisy, noisy, torch.ones(2, 3)) < 7
        True
    """
    with torch.no_grad():
        if (shape := request(x).shape) != expected(x).shape:
            raise WrongAnswer(f"its probabilities have the shape {tuple(shape)} at batch {len(x)}")
        ours, theirs = (torch.stack([one(x[:FEW]) for _ in range(REPEATS)]).double() for one in (request, expected))
    if not ours.std(0).amax() > 0:
        raise WrongAnswer("it gives the same noise to every request")
    error = ((ours.var(0) + theirs.var(0)) / REPEATS).sqrt().clamp_min(torch.finfo(x.dtype).eps)
    distance = ((ours.mean(0) - theirs.mean(0)).abs() / error).max().item()
    if not distance <= STANDARD_ERRORS:
        raise WrongAnswer(f"its mean probabilities are {distance:.1f} standard errors from the module's")
    return distance


SERVED_NETWORKS = ("mlp_512", "conv_16")

BATCHES = (1, 32, 256)
#: The 99th percentile needs some requests, whatever they take; more than the most tell nothing new.
LEAST_REQUESTS, MOST_REQUESTS = 50, 2000

WARM_UP = 5

RESAMPLES = 1000  # of thousands of requests

Key = tuple[str, str]


def run_service(
    networks: Sequence[str | BenchNetwork] = SERVED_NETWORKS,
    batches: Sequence[int] = BATCHES,
    forms: Sequence[str] | None = None,
    requests: int | None = None,
    seconds: float = 60.0,
    threads: int = 1,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    save: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Time single requests for class probabilities to a plain network and to rank-1 models of it.

    For each network and batch, the requests of all modules and forms are interleaved one by one in shuffled order,
    each after one that is not timed, as a service finds its caches filled by itself. A form is timed only if it gives
    the same probabilities as the module: to 1e-5, or with noise per example the same means within their errors.

    Args:
        networks: Networks or their names.
        batches: Examples of a request.
        forms: Names in ``FORMS``; None for all.
        requests: To each form; None for as many as take ``seconds``, from 50 to 2,000.
        seconds: For each network and batch.
        threads: Torch's and ONNX Runtime's threads.
        seed: Of the networks, the inputs and the order.
        progress: Called with the networks and batches done and those in all.
        save: Called with the results so far after each network and batch.

    Returns:
        JSON values: the settings, provenance, the machine's load before the run; for each network and batch a list of
        modules and forms with their seconds (median, 99th percentile, mean), rows per second, and ratio to the plain
        network in the same form. A form that could not be made has ``unavailable``, the reason, instead.

    Example:
        >>> from benchmarks.networks import dense_net
        >>> tiny = BenchNetwork("tiny", "tiny", lambda: dense_net(4), (4,), 8)
        >>> results = run_service([tiny], batches=[2], forms=["eager"], requests=3)
        >>> [(one["module"], one["form"]) for one in results["results"]["tiny"]["2"]]
        [('plain', 'eager'), ('rank1 held draw', 'eager'), ('rank1 per example', 'eager')]
    """
    chosen = [find_network(network, "networks") for network in networks]
    names = list(FORMS) if forms is None else list(forms)
    for name in names:
        check_choice("forms", name, FORMS)
    for batch in batches:
        check_count("batches", batch)
    check_count("threads", threads)
    check_number("seconds", seconds, low=0.0)
    if requests is not None:
        check_count("requests", requests)
    load = load_average()
    total = len(chosen) * len(batches)
    progress(0, total)
    with measuring(threads), torch.random.fork_rng(range(torch.cuda.device_count())):
        source = provenance()
        results: dict[str, Any] = {
            "suite": "service",
            "settings": {"members": MEMBERS, "forms": names, "seconds": seconds, "threads": threads, "seed": seed},
            **source,
            "versions": {**source["versions"], **_versions()},
            "load_before": load,
            "warning": load_warning(load),
            "results": {},
        }
        for network in chosen:
            torch.manual_seed(seed)
            inputs = {batch: torch.randn(batch, *network.row_shape) for batch in batches}
            of_network = results["results"][network.name] = {}
            with TemporaryDirectory() as folder:
                ready, reasons = _prepare(network, names, inputs, Path(folder))
                for batch, x in inputs.items():
                    made = _time(ready, x, requests, seconds, seed)
                    missing = [_missing(key, reason) for key, reason in reasons.items()]
                    of_network[str(batch)] = made + missing
                    progress(sum(map(len, results["results"].values())), total)
                    if save is not None:
                        save(results)
            torch._dynamo.reset()
    return results


def _versions() -> dict[str, str | None]:
    def version(package: str) -> str | None:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return None

    return {package: version(package) for package in ("onnx", "onnxruntime", "onnxscript")}


def _prepare(
    network: BenchNetwork, forms: list[str], inputs: dict[int, Tensor], folder: Path
) -> tuple[dict[Key, Request], dict[Key, str]]:
    """Return the requests that give the right answers, by module and form, and why the others are missing."""
    ready: dict[Key, Request] = {}
    reasons: dict[Key, str] = {}
    # The sizes 0 and 1 are special to compilers; any other stands for all.
    example = torch.randn(max(2, *inputs), *network.row_shape)
    for name, module in build_modules(network.build(), MEMBERS).items():
        network.place(module)
        with torch.no_grad():
            module(example)  # the first pass of a model checks itself, which is not to be compiled
        check = check_distribution if module.random else check_same
        for form in forms:
            own = folder / f"{len(ready)}-{form}"
            own.mkdir()
            try:
                request = FORMS[form](module, example, own)
                for x in inputs.values():
                    check(request, module, x)
            except NotApplicable:
                continue
            except Exception as error:  # whatever keeps a compiler from working is to be told, not to end the run
                reasons[name, form] = _reason(error)
            else:
                ready[name, form] = request
    return ready, reasons


def _reason(error: BaseException) -> str:
    """Return the first line of what was wrong in the first place."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def _time(
    ready: dict[Key, Request], x: Tensor, requests: int | None, seconds: float, seed: int
) -> list[dict[str, Any]]:
    """Time the requests for one batch of inputs."""
    cases = {"/".join(key): _asking(request, x) for key, request in ready.items()}
    once = sum(np.median(one) for one in measure(cases, WARM_UP, seed=seed).values())
    rounds = requests or int(np.clip(seconds / (2 * once), LEAST_REQUESTS, MOST_REQUESTS))
    times = measure(cases, rounds, seed=seed)
    rows = []
    for module, form in ready:
        of_form = times[f"{module}/{form}"]
        # `predict` is what a user writes; a plain network's user calls it.
        baseline = f"{MODULES[0]}/{form if form != 'predict' else 'eager'}"
        rows.append(
            {
                "module": module,
                "form": form,
                "requests": rounds,
                "p50": float(np.percentile(of_form, 50)),
                "p99": float(np.percentile(of_form, 99)),
                "mean": float(of_form.mean()),
                "rows_per_second": len(x) / float(of_form.mean()),
                "ratio": _ratio(times, f"{module}/{form}", baseline, seed) if baseline in times else None,
            }
        )
    return rows


def _asking(request: Request, x: Tensor) -> Callable[[], None]:
    def ask() -> None:
        request(x)

    return ask


def _ratio(times: dict[str, Any], case: str, baseline: str, seed: int) -> dict[str, Any]:
    pair = {name: times[name] for name in (case, baseline)}
    ratio = ratios(pair, baseline, RESAMPLES, seed)[case]
    return {"median": ratio.median, "quartiles": list(ratio.quartiles), "interval": list(ratio.interval)}


def _missing(key: Key, reason: str) -> dict[str, Any]:
    module, form = key
    return {"module": module, "form": form, "unavailable": reason}


HEADINGS = ["network", "batch", "served", "form", "rows/s", "p50 ms", "p99 ms", "ratio", "ratio per row"]


def service_table(results: dict[str, Any], markdown: bool = False) -> str:
    """Return rows per second and latency of every network, batch, module and form.

    Args:
        results: What ``run_service`` returned.
        markdown: Write a Markdown table instead of aligned columns with a note; what is missing follows either way.

    Example:
        >>> ratio = {"median": 4.4, "quartiles": [4.3, 4.5], "interval": [4.3, 4.5]}
        >>> one = {"module": "rank1 held draw", "form": "eager", "rows_per_second": 999.6, "p50": 1e-3, "p99": 2e-3}
        >>> results = {"settings": {"members": 4}, "results": {"mlp_512": {"1": [one | {"ratio": ratio}]}}}
        >>> print(service_table(results, markdown=True))
        | network | batch | served | form | rows/s | p50 ms | p99 ms | ratio | ratio per row |
        |---|---|---|---|---|---|---|---|---|
        | MLP 512 | 1 | rank1 held draw | eager | 1,000 | 1.00 | 2.00 | 4.40 | 1.10 |
    """
    members = results["settings"]["members"]
    rows, reasons = [HEADINGS], {}
    for network, by_batch in results["results"].items():
        title = NETWORKS[network].title if network in NETWORKS else network
        for batch, timed in by_batch.items():
            for one in timed:
                if "unavailable" in one:
                    reasons[title, one["module"], one["form"]] = one["unavailable"]
                else:
                    rows.append([title, batch, one["module"], one["form"], *_figures(one, members)])
    parts = [as_markdown(rows) if markdown else aligned(rows)]
    if reasons:
        parts.append("\n".join(f"Not measured: {', '.join(key)}: {reason}" for key, reason in reasons.items()))
    if not markdown:
        parts.append(_note(results))
    return "\n\n".join(parts)


def _figures(one: dict[str, Any], members: int) -> list[str]:
    draws = 1 if one["module"] == MODULES[0] else members
    ratio = one["ratio"] and one["ratio"]["median"]
    return [
        f"{one['rows_per_second']:,.0f}",
        *(f"{1000 * one[name]:.2f}" for name in ("p50", "p99")),
        *("" if ratio is None else f"{value:.2f}" for value in (ratio, ratio and ratio / draws)),
    ]


def _note(results: dict[str, Any]) -> str:
    settings = results["settings"]
    return (
        f"Class probabilities, {settings['threads']} thread{'s' if settings['threads'] > 1 else ''}; rank-1 models of "
        f"{settings['members']} members, one draw each. Rows/s: batch / mean latency of single requests.\n"
        "Ratio to the plain network in the same form at the same batch (median within interleaved rounds); per row, "
        "divided by the draws that run through the network for each example."
    )
