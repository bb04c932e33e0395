"""Choose the demo's options on the validation digits: ``python -m reproductions.demo_choice OUT.json``."""

import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

from slimbayes._files import write_json
from slimbayes.demo import run

__all__ = ["GRID", "choose"]

#: For each method, the values tried; every combination is.
GRID: dict[str, dict[str, list[Any]]] = {
    "plain": {},
    "temperature": {},
    "mc_dropout": {"rate": [0.05, 0.1, 0.2], "lr": [0.0005, 0.002]},
    "deep_ensemble": {},
    "batch_ensemble": {"init_spread": [0.1, 0.3, 0.5, 1.0], "lr": [0.0005, 0.002]},
    "rank1": {"dropout_rate": [0.01, 0.05, 0.1], "prior_std": [0.15, 0.3, 1.0], "lr": [0.0005, 0.002]},
    "rank1_cauchy": {"dropout_rate": [1e-6, 1e-4, 1e-3], "prior_std": [0.01, 0.03, 0.1], "lr": [0.0005, 0.002]},
    "mean_field": {"prior_std": [0.02, 0.1, 0.3], "init_std": [0.001, 0.01, 0.03], "lr": [0.0005, 0.002]},
    "k_tied": {"prior_std": [0.02, 0.1, 0.3], "init_std": [0.001, 0.01, 0.03], "lr": [0.0005, 0.002]},
    "swag": {"lr": [0.002, 0.005, 0.01], "weight_decay": [0.0, 0.1, 1.0, 3.0]},
    "subspace": {"temperature": [1.0, 10.0, 100.0]},
    "sgmcmc": {"temperature": [0.01, 0.1, 1.0], "prior_std": [0.3, 1.0, 3.0]},
    "sgmcmc_factors": {"temperature": [0.01, 0.1, 1.0], "prior_std": [0.03, 0.1, 0.3]},
    "laplace": {"prior_precision": ["marglik", 1.0, 10.0, 100.0, 1000.0]},
}


def choose(out: Path, seeds: int = 2, epochs: int = 10) -> dict[str, Any]:
    """Score every trial on the validation digits; keep the options with the best NLL on the clean ones.

    The file is written after each trial, and trials that it holds already are not run again.

    Args:
        out: The file: each method's best options, and all trials.
        seeds: Runs of each trial.
        epochs: Passes over the training digits.
    """
    trials: list[dict[str, Any]] = json.loads(out.read_text())["trials"] if out.exists() else []
    result: dict[str, Any] = {"best": {}, "trials": trials}
    for method, grid in GRID.items():
        for values in product(*grid.values()):
            options = dict(zip(grid, values, strict=True))
            trial = next((one for one in trials if one["settings"]["methods"] == {method: options}), None)
            if trial is None:
                outcome = run([method], seeds, epochs, "validation", {method: options})
                trial = {**outcome, "nll": sum(one["clean"]["nll"] for one in outcome["results"]) / seeds}
                trials.append(trial)
                print(f"{method} {options}: NLL {trial['nll']:.4f}", file=sys.stderr, flush=True)
            if method not in result["best"] or trial["nll"] < result["best"][method]["nll"]:
                result["best"][method] = {"nll": trial["nll"], "options": options}
            write_json(out, result)
    return result


if __name__ == "__main__":
    choose(Path(sys.argv[1]))
