"""Low-rank structure of mean-field posteriors on MNIST, and the gradients of k-tied ones.

A mean-field MLP 784-400-400-10 is trained as in appendix D of the k-tied paper; then the spectra of its posterior
(Figure 3), its post-training approximations (Table 2) and the signal-to-noise ratio of the gradients of log sigma,
beside that of k-tied models trained alike (Figure 6, top right), without KL annealing. Every finished run is kept in
a JSON file of its own and not repeated; the last step makes the summary and the plot from those files.

    python experiments/low_rank_mnist.py --data /where/mnist/is

Nothing is tuned: the learning rate and the prior are one choice from the paper's grids.
"""

import argparse
import json
import math
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

import slimbayes as sb
from slimbayes.data import load_mnist
from slimbayes.provenance import provenance

RESULTS = Path(__file__).parent / "results" / "low-rank-mnist"
LAYERS = {"1": "dense 1", "3": "dense 2", "5": "dense 3"}
METHODS = ("mean_field", "1-tied", "2-tied", "3-tied")


@dataclass(frozen=True)
class Settings:
    """What decides a run's numbers, besides its method and seed."""

    data: str
    steps: int = 5000
    batch: int = 1024
    lr: float = 1e-3
    prior_std: float = 0.2
    snr_every: int = 1000
    samples: int = 100

    def without_path(self) -> dict[str, Any]:
        """Return the settings without the place of the data."""
        return {name: value for name, value in asdict(self).items() if name != "data"}


def images(settings: Settings) -> tuple[torch.Tensor, ...]:
    """Return training, validation and test digits in [-1, 1] with labels; the last 10,000 are for validation."""
    digits = load_mnist(settings.data)
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


def run(method: str, seed: int, settings: Settings, out: Path, place: int) -> dict[str, Any]:
    """Train one model and look inside it."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    x, y, valid_x, valid_y, test_x, test_y = images(settings)
    model = build(method, settings)
    elbo = sb.ELBO(model, num_data=len(x))
    optimiser = torch.optim.Adam(model.param_groups(lr=settings.lr))
    snr, drift = sb.analysis.GradientSNR(model), sb.analysis.PosteriorDrift(model)
    ratios: dict[int, Any] = {}
    validation: dict[int, Any] = {}
    bar = tqdm(total=settings.steps, desc=f"{method}, seed {seed}", position=place, disable=not sys.stderr.isatty())
    order = torch.randperm(len(x))
    at = 0
    for step in range(1, settings.steps + 1):
        if at + settings.batch > len(x):
            order, at = torch.randperm(len(x)), 0
        rows = order[at : at + settings.batch]
        at += settings.batch
        optimiser.zero_grad()
        elbo(model(x[rows]), y[rows]).backward()
        if (step - 1) % settings.snr_every >= settings.snr_every - snr.window:  # the last ten batches before the mark
            snr.update()
        optimiser.step()
        elbo.step()
        if step % settings.snr_every == 0:
            ratios[step] = {LAYERS[name]: value._asdict() for name, value in snr.compute().items()}
            validation[step] = evaluate(model, valid_x, valid_y, len(x), 5, seed)
        if step % 100 == 0 or step == 1:
            drift.update(step)
        bar.update()
    result = {
        **provenance(),
        "method": method,
        "seed": seed,
        "settings": settings.without_path(),
        "parameters": sb.count_parameters(model),
        "snr": ratios,
        "validation": validation,
        "test": evaluate(model, test_x, test_y, len(x), settings.samples, seed),
        "drift": {
            "steps": [int(step) for step in drift.steps],
            "mean_sigma": {LAYERS[name]: [float(value) for value in line] for name, line in drift.scales.items()},
        },
        "spectra": {
            LAYERS[name]: {"mean": share.mean[:20].tolist(), "sigma": share.scale[:20].tolist()}
            for name, share in sb.analysis.explained_variance(model).items()
        },
    }
    if method == "mean_field":
        result["approximations"] = {
            f"rank {k}": evaluate(sb.analysis.low_rank(model, k), test_x, test_y, len(x), settings.samples, seed)
            for k in (1, 2, 3)
        }
        if seed == 0:
            picture = sb.analysis.plot_heat_maps(model, "3")
            picture.flat[0].figure.savefig(out / "sigma.png", dpi=100)
    return result


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return means and standard errors over seeds of what the paper's tables and figures show."""
    table: dict[str, Any] = {}
    for method in METHODS:
        own = [one for one in runs if one["method"] == method]
        if not own:
            continue
        row: dict[str, Any] = {"seeds": [one["seed"] for one in own], "parameters": own[0]["parameters"]}
        row["test"] = _over_seeds([one["test"] for one in own])
        row["snr"] = {step: _over_seeds([one["snr"][step] for one in own]) for step in own[0]["snr"]}
        row["validation"] = {
            step: _over_seeds([one["validation"][step] for one in own]) for step in own[0]["validation"]
        }
        row["spectra"] = _over_seeds(
            [
                {
                    layer: {kind: sum(shares[:2]) for kind, shares in spectrum.items()}
                    for layer, spectrum in one["spectra"].items()
                }
                for one in own
            ]
        )
        if "approximations" in own[0]:
            row["approximations"] = _over_seeds([one["approximations"] for one in own])
        table[method] = row
    return table


def _over_seeds(values: list[Any]) -> Any:
    """Return the mean and standard error of each number in a list of alike nests."""
    if isinstance(values[0], dict):
        return {name: _over_seeds([value[name] for value in values]) for name in values[0]}
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "standard_error": None if error is None else float(error)}


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Draw the spectra of the mean-field runs and the gradients' ratios of all."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "slimbayes"  # the same figure from the same numbers
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    mean_field = [one for one in runs if one["method"] == "mean_field"]
    for ax, kind, title in ((axes[0], "mean", "posterior means"), (axes[1], "sigma", "posterior standard deviations")):
        for layer in LAYERS.values():
            lines = np.array([one["spectra"][layer][kind][:10] for one in mean_field])
            ax.plot(np.arange(1, lines.shape[1] + 1), lines.mean(0), marker=".", label=layer)
        ax.set(title=title, xlabel="singular value", ylabel="share of variance explained", ylim=(-0.02, 1.02))
        ax.legend()
    for method in METHODS:
        own = [one for one in runs if one["method"] == method]
        if own:
            steps = [int(step) for step in own[0]["snr"]]
            lines = np.array([[one["snr"][str(step)]["dense 2"]["mean"] for step in steps] for one in own])
            axes[2].plot(steps, lines.mean(0), marker=".", label=method)
    axes[2].set(title="gradient SNR of log σ, dense 2", xlabel="step", ylabel="E[g²] / Var[g]", yscale="log")
    axes[2].legend()
    figure.savefig(path, metadata={"Date": None})


def _write(path: Path, content: Any) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(temporary, path)


def main() -> None:
    """Run what is missing, then write the summary and the plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with MNIST's four IDX files, or with a folder mnist")
    parser.add_argument("--steps", type=int, default=Settings.steps, help="optimiser steps of each run")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each method")
    parser.add_argument("--methods", default=",".join(METHODS), help="separated by commas")
    parser.add_argument("--samples", type=int, default=Settings.samples, help="weights at test time")
    parser.add_argument("--snr-every", type=int, default=Settings.snr_every, help="steps between two windows of ten")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes, one thread each")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    given = parser.parse_args()
    settings = Settings(given.data, given.steps, samples=given.samples, snr_every=given.snr_every)
    runs_folder = given.out / "runs"
    runs_folder.mkdir(parents=True, exist_ok=True)
    wanted = [(method, seed) for seed in range(given.seeds) for method in given.methods.split(",")]
    missing = []
    for method, seed in wanted:
        path = runs_folder / f"{method}-{seed}.json"
        if not path.exists() or json.loads(path.read_text())["settings"] != settings.without_path():
            missing.append((method, seed))
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        tasks = {pool.submit(run, *case, settings, given.out, i): case for i, case in enumerate(missing)}
        for task in as_completed(tasks):
            method, seed = tasks[task]
            _write(runs_folder / f"{method}-{seed}.json", task.result())
    runs = [json.loads((runs_folder / f"{method}-{seed}.json").read_text()) for method, seed in wanted]
    _write(given.out / "summary.json", {**provenance(), "settings": settings.without_path(), "table": summarise(runs)})
    draw(runs, given.out / "spectra-and-snr.svg")


if __name__ == "__main__":
    main()
