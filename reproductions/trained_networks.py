"""What each method does to a trained network.

``python -m reproductions.trained_networks reproductions/results/trained-networks.json`` measures it, then writes the
page.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor

import slimbayes as sb
from slimbayes._files import write_json
from slimbayes._provenance import provenance
from slimbayes._text_table import as_markdown
from slimbayes.methods.registry import get_method
from slimbayes.metrics import expected_calibration_error

__all__ = ["measure", "table"]

#: The methods that have values for trained networks.
METHODS = ("rank1", "batch_ensemble", "mean_field", "k_tied", "mc_dropout")
SEEDS, EPOCHS, BATCH, RATE, DRAWS = 3, 30, 64, 1e-3, 20
#: Training digits, and of them those that only choose: Laplace's precision, and the values for trained networks.
TRAINED_ON, KEPT = 900, 200

#: Where the table goes, and between which lines.
PAGE = Path(__file__).parent.parent / "docs" / "trained-networks.md"
BEGIN, END = "<!-- table: from reproductions/results/trained-networks.json -->", "<!-- end of table -->"

Data = tuple[Tensor, Tensor]


def measure(seed: int, epochs: int = EPOCHS) -> list[dict[str, Any]]:
    """Return one row for each way to convert one trained network, with its scores on the test digits.

    Args:
        seed: Of the split, the network and the training.
        epochs: Passes over the training digits after conversion; the network had 40.
    """
    train, kept, test = _digits(seed)
    torch.manual_seed(seed)
    plain = sb.deterministic(sb.nets.MLP(64, [128, 128], 10))
    _train(plain, train, 40)
    net = plain.member(0)
    rows = [_row("the network as it is", {}, seed, sb.deterministic(net), test)]
    rows[0]["all weights"] = _after(sb.deterministic(net), train, test, epochs)
    for name in METHODS:
        method = get_method(name)
        for options in ({}, {"trained": True}):
            torch.manual_seed(seed)
            row = _row(name, options, seed, method.make(net, **options), test)
            row["all weights"] = _after(method.make(net, **options), train, test, epochs)
            if "freeze_base" in method.options:
                row["added ones"] = _after(method.make(net, freeze_base=True, **options), train, test, epochs)
            rows.append(row)
    for precision in (1.0, "marglik", "validation"):
        validation = [kept] if precision == "validation" else None
        model = sb.laplace(net, [train], prior_precision=precision, validation_batches=validation)
        rows.append(_row("laplace", {"prior_precision": precision}, seed, model, test))
    return rows


def _digits(seed: int) -> tuple[Data, Data, Data]:
    x, y = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed))
    train, kept, test = order.split([TRAINED_ON - KEPT, KEPT, len(order) - TRAINED_ON])
    return tuple((inputs[rows], targets[rows]) for rows in (train, kept, test))  # type: ignore[return-value]


def _batches(data: Data) -> Iterator[Data]:
    for rows in torch.randperm(len(data[1])).split(BATCH):
        yield data[0][rows], data[1][rows]


def _train(model: sb.BayesianModel, data: Data, epochs: int) -> None:
    elbo = sb.ELBO(model, len(data[1]))
    optimiser = torch.optim.Adam(model.param_groups(lr=RATE))
    model.train()
    for _ in range(epochs):
        for x, y in _batches(data):
            optimiser.zero_grad()
            elbo(model(x), y).backward()
            optimiser.step()
    model.eval()


def _after(model: sb.BayesianModel, train: Data, test: Data, epochs: int) -> dict[str, float]:
    _train(model, train, epochs)
    return _scores(model, test)


def _scores(model: sb.BayesianModel, test: Data) -> dict[str, float]:
    x, y = test
    samples = -(-DRAWS // model.members)
    prediction = model.predict(x, samples=samples, seed=0, likelihood="categorical", keep_draws=True)
    return {
        "accuracy": (prediction.label == y).float().mean().item(),
        "nll": -prediction.log_likelihood(y).mean().item(),
        "ece": expected_calibration_error(prediction.probs, y).item(),
    }


def _row(method: str, options: dict[str, Any], seed: int, model: sb.BayesianModel, test: Data) -> dict[str, Any]:
    return {"method": method, "options": options, "seed": seed, "untrained": _scores(model, test)}


def table(stored: dict[str, Any]) -> str:
    """Return the stored rows, means over seeds, as a Markdown table."""
    parts = ("untrained", "all weights", "added ones")
    rows = [["method", "options", *(f"{part}: accuracy / NLL / ECE" for part in parts)]]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in stored["rows"]:
        given = ", ".join(f"{name}={value}" for name, value in row["options"].items())
        groups.setdefault((row["method"], given), []).append(row)
    for (method, given), found in groups.items():
        name = method if " " in method else f"`sb.{method}`"
        cells = [
            " / ".join(f"{fmean(one[part][score] for one in found):.3f}" for score in ("accuracy", "nll", "ece"))
            if part in found[0]
            else ""
            for part in parts
        ]
        rows.append([name, f"`{given}`" if given else "", *cells])
    return as_markdown(rows)


def main(out: Path) -> None:
    """Measure all seeds and write the file, unless it is there; then put the table on its page."""
    if not out.exists():
        rows = [row for seed in range(SEEDS) for row in measure(seed)]
        settings = {"seeds": SEEDS, "epochs": EPOCHS, "batch_size": BATCH, "lr": RATE, "draws": DRAWS}
        write_json(out, {"settings": settings, **provenance(), "rows": rows})
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(json.loads(out.read_text()))}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
