"""Choose the demo's options on the validation digits: ``python -m slimbayes.demo.choose OUT.json``."""

import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

from slimbayes.demo.comparison import METHODS, run
from slimbayes.files import write_json

__all__ = ["GRID", "choose"]

#: For each method, the values tried; every combination is.
GRID: dict[str, dict[str, list[Any]]] = {
    "plain": {"weight_decay": [0.0, 0.01, 0.1, 1.0]},
    "batch_ensemble": {"init_spread": [0.1, 0.5, 1.0], "weight_decay": [0.0, 0.1]},
    "rank1": {"init_spread": [0.1, 0.5, 1.0], "weight_decay": [0.0, 0.1], "prior_std": [0.1, 0.3]},
    "rank1_cauchy": {
        "init_spread": [0.1, 0.5, 1.0],
        "weight_decay": [0.0, 0.1],
        "prior_std": [0.01, 0.1],
        "dropout_rate": [1e-6],
    },
}


def choose(out: Path, seeds: int = 2, epochs: int = 40) -> dict[str, Any]:
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
        fixed = {"family": METHODS[method][1]["family"]} if "family" in METHODS[method][1] else {}
        for values in product(*grid.values()):
            options = {**fixed, **dict(zip(grid, values, strict=True))}
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
