"""Low-rank structure of mean-field posteriors on MNIST, and the gradients of k-tied ones.

Two kinds of runs of the MLP 784-400-400-10, as in appendix D of the k-tied paper, without KL annealing:

structure   A mean-field model is trained until its standard deviations have grown to the prior's size; then the
            spectra of its posterior (Figure 3) and its post-training approximations (Table 2).
gradients   Mean-field and k-tied models are trained for 1000 steps at the smaller learning rate that the paper's
            curves of -ELBO imply (about 3e-4); then the signal-to-noise ratio of the gradients of the logarithms of
            their standard deviations (Figure 6, top right).

    python experiments/low_rank_mnist.py --data /where/mnist/is

Every finished run is kept in a JSON file of its own and not repeated; the last step makes the summary and the plot from
those files. Learning rates and the prior are from the paper's grids. That of the gradients was chosen after a look at
training gradients: at 1e-3 with a prior of 0.2, tried first, k-tied models had nearly converged at step 1000.
"""

import argparse
import json
import math
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

import slimbayes as sb
from slimbayes.data import load_mnist
from slimbayes.files import write_json
from slimbayes.provenance import provenance

RESULTS = Path(__file__).parent / "results" / "low-rank-mnist"
LAYERS = {"1": "dense 1", "3": "dense 2", "5": "dense 3"}
METHODS = ("mean_field", "1-tied", "2-tied", "3-tied")


@dataclass(frozen=True)
class Settings:
    """What decides a run's numbers, besides its method and seed."""

    steps: int
    lr: float
    batch: int = 1024
    prior_std: float = 0.3
    window: int = 10
    samples: int = 100


#: By kind of run.
SETTINGS = {"structure": Settings(steps=5000, lr=1e-3), "gradients": Settings(steps=1000, lr=3e-4)}


def images(folder: str) -> tuple[torch.Tensor, ...]:
    """Return training, validation and test digits in [-1, 1] with labels; the last 10,000 are for validation."""
    digits = load_mnist(folder)
    x, test_x = (
        torch.from_numpy(array).float().flatten(1) / 127.5 - 1 for array in (digits.train_images, digits.test_images)
    )
    y, test_y = (torch.from_numpy(array).long() for array in (digits.train_labels, digits.test_labels))
    held_out = len(x) // 6
    return x[:-held_out], y[:-held_out], x[-held_out:], y[-held_out:], test_x, test_y


def build(method: str, settings: Settings) -> sb.BayesianModel:
    """Return the model of a method: He means, standard deviations around 0.01, plain reparameterisation."""
    net = sb.nets.MLP(784, [400, 400], 10)
    if method == "mean_field":
        return sb.mean_field(net, prior_std=settings.prior_std, init="he")
    return sb.k_tied(net, k=int(method[0]), prior_std=settings.prior_std, init="he")


@torch.no_grad()
def evaluate(
    model: sb.BayesianModel, x: torch.Tensor, y: torch.Tensor, num_data: int, samples: int, seed: int
) -> dict[str, float]:
    """Return -ELBO per example, NLL and accuracy of the mixture over ``samples`` weights."""
    generator = torch.Generator().manual_seed(seed)
    log_probs, losses = [], []
    for _ in range(samples):  # one at a time: a hundred networks' activations would not fit
        outputs = model(x, generator=generator)[0].log_softmax(-1)
        losses.append(torch.nn.functional.nll_loss(outputs, y).item())
        log_probs.append(outputs)
    mixture = torch.logsumexp(torch.stack(log_probs), 0) - math.log(samples)
    kl = model.kl().item() / num_data
    return {
        "negative_elbo": float(np.mean(losses)) + kl,
        "expected_nll": float(np.mean(losses)),
        "kl_per_example": kl,
        "nll": torch.nn.functional.nll_loss(mixture, y).item(),
        "accuracy": (mixture.argmax(-1) == y).float().mean().item(),
    }


def run(kind: str, method: str, seed: int, settings: Settings, data: str, out: Path, place: int) -> dict[str, Any]:
    """Train one model and look inside it."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    x, y, valid_x, valid_y, test_x, test_y = images(data)
    model = build(method, settings)
    elbo = sb.ELBO(model, num_data=len(x))
    optimiser = torch.optim.Adam(model.param_groups(lr=settings.lr))
    snr, drift = sb.analysis.GradientSNR(model, settings.window), sb.analysis.PosteriorDrift(model)
    bar = tqdm(total=settings.steps, desc=f"{kind}, {method}, seed {seed}", position=place, disable=not _terminal())
    order, at = torch.randperm(len(x)), 0
    for step in range(1, settings.steps + 1):
        if at + settings.batch > len(x):
            order, at = torch.randperm(len(x)), 0
        rows = order[at : at + settings.batch]
        at += settings.batch
        optimiser.zero_grad()
        elbo(model(x[rows]), y[rows]).backward()
        if step > settings.steps - settings.window:
            snr.update()
        optimiser.step()
        if step % 100 == 0 or step == 1:
            drift.update(step)
        bar.update()
    result = {
        **provenance(),
        "kind": kind,
        "method": method,
        "seed": seed,
        "settings": asdict(settings),
        "parameters": sb.count_parameters(model),
        "snr": {
            # JSON has no infinity: null is the mean where some gradient never changed.
            LAYERS[name]: {key: one if math.isfinite(one) else None for key, one in value._asdict().items()}
            for name, value in snr.compute().items()
        },
        "snr_of_model": snr.of_model(),
        "validation": evaluate(model, valid_x, valid_y, len(x), settings.samples // 10 or 1, seed),
        "drift": {
            "steps": [int(step) for step in drift.steps],
            "mean_sigma": {LAYERS[name]: [float(value) for value in line] for name, line in drift.scales.items()},
        },
    }
    if kind == "structure":
        models = {"mean-field": model} | {f"rank {k}": sb.analysis.low_rank(model, k) for k in (1, 2, 3)}
        result["test"] = {
            name: evaluate(one, test_x, test_y, len(x), settings.samples, seed) for name, one in models.items()
        }
        result["spectra"] = {
            LAYERS[name]: {"mean": share.mean[:20].tolist(), "sigma": share.scale[:20].tolist()}
            for name, share in sb.analysis.explained_variance(model).items()
        }
        if seed == 0:
            picture = sb.analysis.plot_heat_maps(model, "3")
            picture.flat[0].figure.savefig(out / "sigma.png", dpi=100)
    return result


def _terminal() -> bool:
    return sys.stderr.isatty()


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return means and standard errors over seeds of what the paper's tables and figures show."""
    structure = [one for one in runs if one["kind"] == "structure"]
    first_two = [
        {layer: {kind: sum(shares[:2]) for kind, shares in one["spectra"][layer].items()} for layer in one["spectra"]}
        for one in structure
    ]
    table: dict[str, Any] = {
        "structure": {
            "seeds": [one["seed"] for one in structure],
            "test": _over_seeds([one["test"] for one in structure]),
            "share_of_first_two": _over_seeds(first_two),
        },
        "gradients": {},
    }
    for method in METHODS:
        own = [one for one in runs if one["kind"] == "gradients" and one["method"] == method]
        if own:
            table["gradients"][method] = {
                "seeds": [one["seed"] for one in own],
                "parameters": own[0]["parameters"],
                "snr": _over_seeds([one["snr"] for one in own]),
                "snr_of_model": _over_seeds([one["snr_of_model"] for one in own]),
                "validation": _over_seeds([one["validation"] for one in own]),
            }
    return table


def _over_seeds(values: list[Any]) -> Any:
    """Return the mean and standard error of each number in a list of alike nests."""
    if isinstance(values[0], dict):
        return {name: _over_seeds([value[name] for value in values]) for name in values[0]}
    if None in values:
        return None
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "standard_error": None if error is None else float(error)}


def tables(summary: dict[str, Any]) -> str:
    """Return the numbers as tables in Markdown, as docs/low-rank-mnist.md shows them."""
    structure, gradients = summary["table"]["structure"], summary["table"]["gradients"]
    lines = ["| layer | first two of the means | first two of σ |", "|---|---|---|"]
    for layer, share in structure["share_of_first_two"].items():
        lines.append(f"| {layer} | {_number(share['mean'], 3)} | {_number(share['sigma'], 4)} |")
    lines += ["", "| σ at test time | -ELBO | NLL | accuracy |", "|---|---|---|---|"]
    for name, row in structure["test"].items():
        cells = (_number(row["negative_elbo"], 3), _number(row["nll"], 4), _number(row["accuracy"], 4))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    layers = list(LAYERS.values())
    lines += [
        "",
        f"| gradient SNR at step 1000 | all layers | {' | '.join(layers)} | median, dense 2 | -ELBO |",
        "|---|" + "---|" * 6,
    ]
    for method, row in gradients.items():
        cells = [_number(one, 1) for one in (row["snr_of_model"], *(row["snr"][layer]["layer"] for layer in layers))]
        cells += [_number(row["snr"]["dense 2"]["median"], 1), _number(row["validation"]["negative_elbo"], 2)]
        lines.append(f"| {method.replace('_', '-')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(value: dict[str, float] | None, digits: int) -> str:
    if value is None:
        return "infinite"
    error = "" if value["standard_error"] is None else f" ± {value['standard_error']:.{digits}f}"
    return f"{value['mean']:.{digits}f}{error}"


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Draw the spectra of the mean-field runs and the gradients' ratios of all."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "slimbayes"  # the same figure from the same numbers
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    structure = [one for one in runs if one["kind"] == "structure"]
    for ax, kind, title in ((axes[0], "mean", "posterior means"), (axes[1], "sigma", "posterior standard deviations")):
        for layer in LAYERS.values():
            lines = np.array([one["spectra"][layer][kind][:10] for one in structure])
            ax.plot(np.arange(1, lines.shape[1] + 1), lines.mean(0), marker=".", label=layer)
        ax.set(title=title, xlabel="singular value", ylabel="share of variance explained", ylim=(-0.02, 1.02))
        ax.legend()
    for place, method in enumerate(METHODS):
        own = [one for one in runs if one["kind"] == "gradients" and one["method"] == method]
        ratios = [[one["snr"][layer]["layer"] for one in own] for layer in LAYERS.values()]
        axes[2].bar(np.arange(3) + 0.2 * (place - 1.5), [np.mean(ratio) for ratio in ratios], 0.2, label=method)
    axes[2].set_xticks(range(3), list(LAYERS.values()))
    axes[2].set(title="gradient SNR of log σ after 1000 steps", ylabel="Σ E[g²] / Σ Var[g]", yscale="log")
    axes[2].legend()
    figure.savefig(path, metadata={"Date": None})


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing, then write the summary and the plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with MNIST's four IDX files, or with a folder mnist")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each kind and method")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes, one thread each")
    parser.add_argument(
        "--out", type=Path, help="folder of the results; by default the stored ones, or runs/ with --smoke"
    )
    parser.add_argument("--smoke", action="store_true", help="20 steps and 3 samples: does everything run?")
    given = parser.parse_args(arguments)
    if given.seeds < 1:
        parser.error(f"--seeds must be at least 1, but got {given.seeds}")
    given.out = given.out or (Path("runs") / "low-rank-mnist" if given.smoke else RESULTS)
    settings = SETTINGS
    if given.smoke:
        settings = {kind: replace(one, steps=20, samples=3) for kind, one in SETTINGS.items()}
    (given.out / "runs").mkdir(parents=True, exist_ok=True)
    wanted = [
        (kind, method, seed)
        for seed in range(given.seeds)
        for kind, method in [("structure", "mean_field"), *(("gradients", method) for method in METHODS)]
    ]
    files = {case: given.out / "runs" / "{}-{}-{}.json".format(*case) for case in wanted}
    missing = [
        case
        for case, path in files.items()
        if not path.exists() or json.loads(path.read_text())["settings"] != asdict(settings[case[0]])
    ]
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        tasks = {
            pool.submit(run, *case, settings[case[0]], given.data, given.out, i): case for i, case in enumerate(missing)
        }
        for task in as_completed(tasks):
            write_json(files[tasks[task]], task.result())
    runs = [json.loads(path.read_text()) for path in files.values()]
    summary = {"settings": {kind: asdict(one) for kind, one in settings.items()}, "table": summarise(runs)}
    write_json(given.out / "summary.json", {**provenance(), **summary})
    draw(runs, given.out / "spectra-and-snr.svg")
    print(tables(summary))


if __name__ == "__main__":
    main()
