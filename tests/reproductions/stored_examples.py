"""A folder of reproductions with made-up runs, whose means are known."""

import json
import math

import numpy as np
import yaml

from reproductions.stored import comparable
from reproductions.study import read_study

STUDY = {
    "title": "Digits MLP",
    "base": {"data": "digits", "net": "mlp", "annealing": {"name": "linear", "fraction": 0.3}},
    "methods": {"mean_field": {"prior_std": 0.3}, "2-tied": {"name": "k_tied", "k": 2, "prior_std": 0.3}},
    "seeds": 3,
    "layers": {"1": "dense 1", "3": "dense 2"},
    "scales": {
        "paper": {"minutes": 30},
        "small": {"minutes": 10, "cut": "half the epochs\n"},
        "smoke": {"minutes": 0.1, "seeds": 1},
    },
}
LAYERS = ("1", "3")


def run_of(method="mean_field", seed=0, study="digits", scale="small", offset=0.0):
    """Return a stored run; its numbers grow with the seed."""
    size = offset + seed

    def scores(extra=0.0):
        return {
            "negative_elbo": {"value": 1 + 0.1 * size + extra, "sem": 0.02},
            "nll": {"value": 0.5 + 0.01 * size + extra, "sem": 0.005},
            "brier": {"value": 0.2 + 0.01 * size, "sem": 0.004},
            "accuracy": {"value": 0.9 + 0.002 * size, "sem": 0.003},
            "ece": {"value": 0.05 + 0.001 * size},
        }

    random = np.random.default_rng(seed)
    maps = {name: random.random((4, 3)).tolist() for name in ("sigma", "1", "2")}
    run = {
        "study": study,
        "scale": scale,
        "cell": f"{method}-seed{seed}",
        "method": method,
        "override": None,
        "seed": seed,
        "parameters": 1000 if method == "mean_field" else 600,
        "epochs": 10,
        "steps": 100,
        "seconds": 1800.0,
        "curve": [
            {
                "step": step,
                "seconds": step * (1 + seed),
                "negative_elbo": 100 / step + size,
                "scales": dict.fromkeys(LAYERS, 0.01 * step + 0.001 * seed),
            }
            for step in (10, 50, 100)
        ],
        "snr": {
            "50": {"model": 3.0 + seed, "layers": {"3": {"mean": None, "median": 2.0 + seed, "layer": 4.0 + seed}}}
        },
        "test": scores(),
        "validation": scores(0.25),
        "spectra": {layer: {"mean": [0.3, 0.2, 0.1], "scale": [0.8 + 0.01 * seed, 0.1, 0.05]} for layer in LAYERS},
        "commit": "0123456789abcdef",
        "hardware": {"machine": "x86_64", "processor": "Some CPU", "cores": 2, "threads": 1, "gpu": None},
    }
    if method == "mean_field":
        for kind in ("low_rank", "tie"):
            run[kind] = {str(k): {"test": scores(1 / k), "parameters": 500 + 50 * k} for k in (1, 2)}
        run["heat_maps"] = {"3": {"shape": [40, 30], **maps}}
    return run


def write_study(folder, name="digits", **changes):
    (folder / "studies").mkdir(parents=True, exist_ok=True)
    (folder / "studies" / f"{name}.yaml").write_text(yaml.safe_dump({**STUDY, **changes}, sort_keys=False))


def write_run(folder, run):
    """Write a run with the configuration that its study has for it."""
    cells = read_study(folder / "studies" / f"{run['study']}.yaml").cells(run["scale"])
    run = {**run, "config": next(comparable(cell.config) for cell in cells if cell.name == run["cell"])}
    place = folder / "results" / run["study"] / run["scale"]
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{run['cell']}.json").write_text(json.dumps(run))


def write_reproductions(folder, seeds=3, study="digits"):
    """Write a study and all its runs at small scale."""
    write_study(folder, study)
    for method, offset in (("mean_field", 0.0), ("2-tied", 5.0)):
        for seed in range(seeds):
            write_run(folder, run_of(method, seed, study, offset=offset))
    return folder


def write_item(folder, name="k_tied_table_9", **changes):
    item = {
        "paper": "k-tied",
        "item": "Table 9",
        "title": "Scores",
        "claim": "Tied ones are as good.",
        "studies": ["digits"],
        "show": [{"kind": "table", "study": "digits", "columns": ["nll", "accuracy"]}],
        **changes,
    }
    (folder / "items").mkdir(parents=True, exist_ok=True)
    (folder / "items" / f"{name}.yaml").write_text(yaml.safe_dump(item, sort_keys=False, allow_unicode=True))


def mean_and_error(values):
    """Return the mean and its standard error, by hand."""
    return np.mean(values), np.std(values, ddof=1) / math.sqrt(len(values))


def cells(text):
    """Return the cells of the first Markdown table in a text, by the first cell of each row."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("|---")]
    return {row[0]: row[1:] for row in rows}
