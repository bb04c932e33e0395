"""How many targets 90% intervals cover with default settings, and the page that says so.

``python -m reproductions.intervals reproductions/results/intervals.json [SET ...]`` measures what the file does not
hold yet, then writes the page.
"""

import json
import math
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from slimbayes._files import write_json
from slimbayes._provenance import provenance
from slimbayes._text_table import as_markdown
from slimbayes.data.registry import load_data
from slimbayes.training import fit
from slimbayes.training.batches import blocks

__all__ = ["coverage", "table"]

#: From the cheapest on, with the splits that are run: all of the small sets, whose test parts have 31 to 160 rows.
SETS = {
    "yacht": 20,
    "boston": 20,
    "energy": 20,
    "concrete": 20,
    "wine": 20,
    "kin8nm": 5,
    "power": 5,
    "naval": 5,
    "protein": 5,
}
METHODS = ("deterministic", "rank1", "batch_ensemble", "mean_field", "k_tied", "mc_dropout", "deep_ensemble")
LEVEL, DRAWS = 0.9, 20

#: Where the table goes, and between which lines.
PAGE = Path(__file__).parent.parent / "docs" / "intervals.md"
BEGIN, END = "<!-- table: from reproductions/results/intervals.json -->", "<!-- end of table -->"


def coverage(name: str, method: str, split: int) -> dict[str, Any]:
    """Train a network with default settings on one split; return what its intervals cover of the test targets.

    RMSE, noise and spread (standard deviation of the draws' means) are in standard deviations of the training targets.
    ``kurtosis`` is that of the test errors: 3 if they are normal.
    """
    data_options = {"name": "uci", "set": name, "split": split}
    with tempfile.TemporaryDirectory() as folder:
        config = {"data": data_options, "net": "mlp", "method": method}
        start = time.perf_counter()
        run = fit(config, Path(folder) / "run", quiet=True)
        seconds = time.perf_counter() - start
        model = run.model()
    data = load_data("uci", set=name, split=split)
    assert data.test is not None
    inside, squares, noise, spread = [], [], [], []
    for inputs, targets in blocks(data.test, data.preparation, 2048, 0, 1):
        prediction = model.predict(*inputs, samples=-(-DRAWS // model.members), seed=0, keep_draws=True)
        low, high = prediction.interval(LEVEL)
        y = targets.view_as(low)
        inside.append(((y >= low) & (y <= high)).double())
        squares.append((y - prediction.mean).square().double())
        noise.append(prediction.aleatoric_std.double())
        spread.append(prediction.epistemic_std.square().double())
    square = torch.cat(squares)
    return {
        "set": name,
        "method": method,
        "split": split,
        "coverage": torch.cat(inside).mean().item(),
        "rmse": square.mean().sqrt().item(),
        "noise": torch.cat(noise).mean().item(),
        "spread": torch.cat(spread).mean().sqrt().item(),
        "kurtosis": (square.square().mean() / square.mean().square()).item(),
        "test_rows": len(square),
        "seconds": seconds,
    }


def table(stored: dict[str, Any]) -> str:
    """Return two Markdown tables of the stored rows: coverage, and what explains it where it is not within 88-92%.

    Coverage is in per cent, with its standard error over splits.
    """
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in stored["rows"]:
        found.setdefault((row["set"], row["method"]), []).append(row)
    covered = [["set", "splits", "test rows of a split", *(f"`{method}`" for method in METHODS)]]
    outside = [["set", "method", "coverage", "RMSE", "noise", "spread", "kurtosis"]]
    for name in SETS:
        of_set = {method: found[name, method] for method in METHODS if (name, method) in found}
        if of_set:
            first = next(iter(of_set.values()))
            cells = [_cell(of_set[method]) if method in of_set else "" for method in METHODS]
            covered.append([name, str(len(first)), str(first[0]["test_rows"]), *cells])
        for method, rows in of_set.items():
            if not _within(rows):
                means = [f"{fmean(row[key] for row in rows):.2f}" for key in ("rmse", "noise", "spread", "kurtosis")]
                outside.append([name, f"`{method}`", _cell(rows), *means])
    return f"{as_markdown(covered)}\n\nOutside 88-92%:\n\n{as_markdown(outside)}"


def _within(rows: list[dict[str, Any]]) -> bool:
    return 0.88 <= fmean(row["coverage"] for row in rows) <= 0.92


def _cell(rows: list[dict[str, Any]]) -> str:
    values = [100 * row["coverage"] for row in rows]
    cell = f"{fmean(values):.1f} ± {stdev(values) / math.sqrt(len(values)):.1f}"
    return cell if _within(rows) else f"**{cell}**"


def main(out: Path, sets: list[str]) -> None:
    """Measure what the file does not hold yet, and write it after each set; then put the table on its page."""
    torch.set_num_threads(1)
    stored = json.loads(out.read_text()) if out.exists() else {"rows": []}
    done = {(row["set"], row["method"], row["split"]) for row in stored["rows"]}
    for name in sets:
        runs = [(name, method, split) for method in METHODS for split in range(SETS[name])]
        missing = [run for run in runs if run not in done]
        if missing:
            rows = [*stored["rows"], *(coverage(*run) for run in missing)]
            stored = {"settings": {"level": LEVEL, "draws": DRAWS, "train_limit": None}, **provenance(), "rows": rows}
            write_json(out, stored)
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(stored)}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(SETS))
