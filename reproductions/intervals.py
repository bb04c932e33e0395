"""How many targets 90% intervals cover with default settings: ``python -m reproductions.intervals OUT.json``."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from slimbayes._files import write_json
from slimbayes._provenance import provenance
from slimbayes.data.registry import load_data
from slimbayes.training import fit
from slimbayes.training.batches import blocks

__all__ = ["coverage"]

#: From the cheapest on.
SETS = ("yacht", "boston", "energy", "concrete", "wine", "kin8nm", "power", "naval", "protein")
METHODS = ("deterministic", "rank1", "deep_ensemble", "mc_dropout")
SPLITS, LEVEL, SAMPLES = 3, 0.9, 20


def coverage(name: str, method: str, split: int) -> dict[str, Any]:
    """Train a network with default settings on one split; return what its intervals cover of the test targets.

    RMSE and noise are in standard deviations of the training targets.
    """
    data_options = {"name": "uci", "set": name, "split": split}
    options = {"members": 4} if method == "deep_ensemble" else {}
    with tempfile.TemporaryDirectory() as folder:
        config = {"data": data_options, "net": "mlp", "method": {"name": method, **options}}
        run = fit(config, Path(folder) / "run", quiet=True)
        model = run.model()
    data = load_data("uci", set=name, split=split)
    assert data.test is not None
    inside, squares, noise = [], [], []
    for inputs, targets in blocks(data.test, data.preparation, 2048, 0, 1):
        prediction = model.predict(*inputs, samples=SAMPLES, seed=0, keep_draws=True)
        low, high = prediction.interval(LEVEL)
        y = targets.view_as(low)
        inside.append(((y >= low) & (y <= high)).double())
        squares.append((y - prediction.mean).square().double())
        noise.append(prediction.aleatoric_std.double())
    return {
        "set": name,
        "method": method,
        "split": split,
        "coverage": torch.cat(inside).mean().item(),
        "rmse": torch.cat(squares).mean().sqrt().item(),
        "noise": torch.cat(noise).mean().item(),
    }


def main(out: Path, sets: tuple[str, ...] = SETS) -> None:
    """Measure what the file does not hold yet; it is written after each run."""
    torch.set_num_threads(1)
    stored = json.loads(out.read_text())["rows"] if out.exists() else []
    done = {(row["set"], row["method"], row["split"]) for row in stored}
    for name in sets:
        for method in METHODS:
            for split in range(SPLITS):
                if (name, method, split) not in done:
                    stored.append(coverage(name, method, split))
                    write_json(out, {"level": LEVEL, "samples": SAMPLES, **provenance(), "rows": stored})


if __name__ == "__main__":
    main(Path(sys.argv[1]), tuple(sys.argv[2:]) or SETS)
