"""Choose the demo's options on the validation digits: ``python -m slimbayes.demo.choose OUT.json``."""

import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

from slimbayes.demo.comparison import METHODS, run

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


def choose(seeds: int = 2, epochs: int = 40) -> dict[str, Any]:
    """Return every trial and, for each method, the options with the best NLL on clean validation digits."""
    trials: list[dict[str, Any]] = []
    best: dict[str, dict[str, Any]] = {}
    for method, grid in GRID.items():
        fixed = {"family": METHODS[method][1]["family"]} if "family" in METHODS[method][1] else {}
        for values in product(*grid.values()):
            options = {**fixed, **dict(zip(grid, values, strict=True))}
            outcome = run([method], seeds, epochs, "validation", {method: options})
            nll = sum(result["clean"]["nll"] for result in outcome["results"]) / seeds
            trials.append({**outcome, "nll": nll})
            print(f"{method} {options}: NLL {nll:.4f}", file=sys.stderr, flush=True)
            if method not in best or nll < best[method]["nll"]:
                best[method] = {"nll": nll, "options": options}
    return {"best": best, "trials": trials}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(choose(), indent=2) + "\n")
