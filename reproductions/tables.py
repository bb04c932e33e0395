"""Regression of the UCI sets with their standard splits by ``slimbayes.sklearn``, one run at a time.

``nice -n 10 python -m reproductions.tables [--set yacht] [--method default] [--split 0]`` makes the runs that are not
stored yet, each a file of ``reproductions/results/uci_tables``; every option can be given several times. The test rows
are those of the split, and every run has the defaults of ``BayesRegressor`` but for its method.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import torch

from reproductions.tables_tuning import rows_of, scores
from slimbayes._files import write_json
from slimbayes._provenance import provenance

__all__ = ["METHODS", "SPLITS", "planned", "run"]

#: Splits of each set.
SPLITS = {
    "yacht": 20,
    "boston": 20,
    "energy": 20,
    "concrete": 20,
    "wine": 20,
    "kin8nm": 20,
    "power": 20,
    "naval": 20,
    "protein": 5,
}
#: Sets of which methods other than the default have five splits.
LARGE = ("kin8nm", "power", "naval", "protein")
#: Arguments of ``BayesRegressor``; None for HistGradientBoosting.
METHODS: dict[str, dict[str, Any] | None] = {
    "default": {},
    "rank1_normal": {"method": "rank1", "members": 4},
    "rank1_cauchy": {"method": "rank1", "members": 4, "family": "cauchy"},
    "batch_ensemble_32": {"method": "batch_ensemble", "members": 32},
    "k_tied": {"method": "k_tied"},
    "mc_dropout": {"method": "mc_dropout"},
    "deep_ensemble": {"method": "deep_ensemble", "members": 4},
    "plain": {"method": "deterministic"},
    "boosting": None,
}
FOLDER = Path(__file__).parent / "results" / "uci_tables"


def planned(sets: list[str], methods: list[str], splits: list[int] | None) -> list[tuple[str, str, int]]:
    """Return set, method and split of each run of the study.

    Args:
        sets: Names; empty for all.
        methods: Names; empty for all.
        splits: Numbers; None for all of the study.

    Example:
        >>> len(planned([], [], None)), planned(["yacht"], ["plain"], [0, 99])
        (1125, [('yacht', 'plain', 0)])
    """
    return [
        (name, method, split)
        for name in sets or SPLITS
        for method in methods or METHODS
        for split in range(5 if name in LARGE and method != "default" else SPLITS[name])
        if splits is None or split in splits
    ]


def run(name: str, method: str, split: int, folder: Path = FOLDER) -> None:
    """Make a run and store it, unless it is stored.

    Args:
        name: The set.
        method: One of ``METHODS``.
        split: Number of the split, and the seed.
        folder: Where results are.
    """
    path = folder / f"{name}-{method}-{split}.json"
    if path.exists():
        return
    found = scores(METHODS[method], rows_of(name, split, test=True), seed=split)
    about = {"set": name, "method": method, "split": split, "seed": split, "options": METHODS[method]}
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, {**about, **found, **provenance()})
    print(f"{path.stem}: log-likelihood {found['log_likelihood']:.3f}, RMSE {found['rmse']:.3f}", flush=True)


def main() -> None:
    """Make the runs that the command line asks for."""
    parser = argparse.ArgumentParser(description="Runs of tables that are not stored yet.")
    parser.add_argument("--set", action="append", default=[], choices=list(SPLITS))
    parser.add_argument("--method", action="append", default=[], choices=list(METHODS))
    parser.add_argument("--split", action="append", type=int)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    for one in planned(asked.set, asked.method, asked.split):
        run(*one)


if __name__ == "__main__":
    main()
