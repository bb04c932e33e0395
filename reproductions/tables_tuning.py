"""The choice of the default settings of ``slimbayes.sklearn``, on training rows of UCI sets alone.

``python -m reproductions.tables_tuning reproductions/results/tables-tuning.json [SETTING ...]`` measures what the file
does not hold yet. Of each set the training rows of its first standard split are divided further: four fifths are
trained on, one fifth is scored. The test rows of the split are not looked at.
"""

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from sklearn.ensemble import HistGradientBoostingRegressor

from slimbayes._files import write_json
from slimbayes._provenance import provenance
from slimbayes._text_table import as_markdown
from slimbayes.data.registry import load_data
from slimbayes.data.uci import UCI_SETS
from slimbayes.sklearn import BayesRegressor

__all__ = ["SETTINGS", "rows_of", "scores", "table"]

#: Where the table goes, and between which lines.
PAGE = Path(__file__).parent.parent / "docs" / "tables.md"
BEGIN, END = "<!-- table: from reproductions/results/tables-tuning.json -->", "<!-- end of table -->"

#: Inputs and targets to train on, and those to score.
Rows = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
#: Of each set at most so many rows are used here.
MOST_ROWS = 1500
SETS = ("boston", "concrete", "yacht", "energy", "wine", "kin8nm")
#: What was tried: arguments of ``BayesRegressor``.
SETTINGS: dict[str, dict[str, Any]] = {
    "gaussian": {"method": "batch_ensemble", "members": 8, "validation_fraction": 0.1, "refit": False},
    "rank1": {"method": "rank1", "members": 4, "validation_fraction": 0.1, "refit": False},
    "gaussian_fifth_refit": {"method": "batch_ensemble", "members": 8, "validation_fraction": 0.2, "refit": True},
    "student_fifth_refit": {
        "method": "batch_ensemble",
        "members": 8,
        "validation_fraction": 0.2,
        "refit": True,
        "head": "student_t",
    },
    "constant_fifth_refit": {
        "method": "batch_ensemble",
        "members": 8,
        "validation_fraction": 0.2,
        "refit": True,
        "head": "gaussian_constant",
    },
    "piecewise_fifth_refit": {
        "method": "batch_ensemble",
        "members": 8,
        "validation_fraction": 0.2,
        "refit": True,
        "embedding": "piecewise",
    },
}


def rows_of(name: str, split: int, test: bool) -> Rows:
    """Return inputs and targets to train on, and those to score, of a standard split.

    Args:
        name: The set.
        split: Its number.
        test: Whether to score the split's test rows; else its training rows are divided.
    """
    data = load_data("uci", set=name, split=split, validation=0)
    assert data.task.target_mean is not None
    assert data.test is not None
    std = data.task.target_std

    def arrays(part: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return part.inputs[0].numpy(), part.targets.double().numpy() * std + data.task.target_mean

    x, y = arrays(data.train)
    if test:
        return (x, y, *arrays(data.test))
    order = np.random.default_rng(0).permutation(len(x))[:MOST_ROWS]
    kept, scored = order[len(order) // 5 :], order[: len(order) // 5]
    return x[kept], y[kept], x[scored], y[scored]


def scores(options: dict[str, Any] | None, rows: Rows, seed: int = 0) -> dict[str, Any]:
    """Return the scores of a fit; ``None`` for HistGradientBoosting, with a Gaussian as wide as held-out residuals."""
    x, y, x_new, y_new = rows
    start, cpu = time.perf_counter(), time.process_time()
    about: dict[str, Any] = {}
    if options is None:
        held = len(x) // 10
        trial = HistGradientBoostingRegressor(random_state=seed).fit(x[held:], y[held:])
        noise = np.sqrt(np.mean((y[:held] - trial.predict(x[:held])) ** 2))
        mean = HistGradientBoostingRegressor(random_state=seed).fit(x, y).predict(x_new)
        log_density = stats.norm.logpdf(y_new, mean, noise)
        low, high = mean + noise * stats.norm.ppf(0.05), mean + noise * stats.norm.ppf(0.95)
        crps = _crps(mean[:, None] + noise * stats.norm.ppf(LEVELS), y_new)
    else:
        model = BayesRegressor(**options, random_state=seed).fit(x, y)
        about = {"epochs": model.history_.epochs, "best_epoch": model.n_iter_, "width": model.width_}
        d = model.pred_dist(x_new)
        mean, log_density = d.mean, d.logpdf(y_new)
        low, high = d.ppf([0.05, 0.95]).T
        crps = _crps(d.ppf(LEVELS), y_new)
    return {
        "log_likelihood": float(log_density.mean()),
        "rmse": float(np.sqrt(np.mean((mean - y_new) ** 2))),
        "crps": crps,
        "coverage": float(np.mean((y_new >= low) & (y_new <= high))),
        "rows": len(x),
        "scored_rows": len(x_new),
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
        **about,
    }


#: Levels at which the integral of the pinball loss is taken.
LEVELS = (np.arange(50) + 0.5) / 50


def _crps(quantiles: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    r"""Return :math:`2 \int_0^1 \rho_\tau(y - q_\tau) d\tau`, the CRPS, by the midpoint rule."""
    u = y[:, None] - quantiles
    return float(2 * np.mean(u * (LEVELS - (u < 0))))


def table(stored: dict[str, Any]) -> str:
    """Return a Markdown table of the log-likelihoods and coverages, of the settings that were tried on every set."""
    found = {(row["setting"], row["set"]): row for row in stored["rows"]}
    names = [name for name in ("boosting", *SETTINGS) if all((name, each) in found for each in SETS)]
    lines = [["setting", *SETS, "mean coverage, %"]]
    for name in names:
        rows = [found[name, each] for each in SETS]
        coverage = 100 * sum(row["coverage"] for row in rows) / len(rows)
        lines.append([f"`{name}`", *(f"{row['log_likelihood']:.2f}" for row in rows), f"{coverage:.1f}"])
    return as_markdown(lines)


def main(out: Path, names: list[str]) -> None:
    """Measure what the file does not hold yet, and write it after each fit."""
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    stored = json.loads(out.read_text()) if out.exists() else {"rows": []}
    done = {(row["setting"], row["set"]) for row in stored["rows"]}
    for setting in names:
        options = None if setting == "boosting" else SETTINGS[setting]
        for name in SETS:
            if (setting, name) in done:
                continue
            row = {"setting": setting, "set": name, **scores(options, rows_of(name, 0, test=False))}
            stored["rows"].append(row)
            write_json(out, {"settings": SETTINGS, "most_rows": MOST_ROWS, **provenance(), "rows": stored["rows"]})
            write_page(stored)
            print({key: value for key, value in row.items() if key not in ("rows", "scored_rows")}, flush=True)


def write_page(stored: dict[str, Any]) -> None:
    """Put the table on its page."""
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(stored)}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    assert set(SETS) <= set(UCI_SETS)
    main(Path(sys.argv[1]), sys.argv[2:] or ["boosting", *SETTINGS])
