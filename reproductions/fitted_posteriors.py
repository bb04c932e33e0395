"""Posteriors for a trained network that are fitted in minutes, beside a temperature: the table of ``sb.fit_posterior``.

``python -m reproductions.fitted_posteriors [resnet20 | resnet56] [ROW ...]`` measures what the stored file of that
network lacks, part by part, so that a run that is stopped goes on, then writes the page. Everything is fitted, and
every setting was chosen, on the first half of CIFAR-10's test images; scores are of the other half.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import slimbayes as sb
from slimbayes._files import write_json
from slimbayes._provenance import provenance
from slimbayes._text_table import as_markdown
from slimbayes.data.folders import data_folder
from slimbayes.data.registry import load_data
from slimbayes.evaluation.ood_sets import ood_condition
from slimbayes.metrics import expected_calibration_error
from slimbayes.metrics.ood import entropy_score, ood_scores
from slimbayes.model import ENOUGH_DRAWS
from slimbayes.prediction import Prediction

__all__ = ["NETWORKS", "ROWS", "table", "verdict"]

#: The networks, by their depth, with the public weights of that name.
NETWORKS = {"resnet20": 20, "resnet56": 56}
HALF, SEARCHED, BATCH, SEVERITY, SHIFTED, FOREIGN = 5000, 2000, 100, 3, 1000, 1000
FOREIGN_SETS = ("cifar100", "fashion_mnist")
PARTS = ("clean", *sb.corruptions.COMMON, *FOREIGN_SETS)

RESULTS = Path(__file__).parent / "results" / "fitted-posteriors"
#: Where the tables go, and between which lines.
PAGE = Path(__file__).parent.parent / "docs" / "trained-networks.md"
BEGIN, END = "<!-- table: from reproductions/results/fitted-posteriors -->", "<!-- end of fitted posteriors -->"

Batches = list[tuple[Tensor, Tensor]]


class Data:
    """Images of CIFAR-10 and others, prepared as the public weights want them."""

    def __init__(self) -> None:
        self.set = load_data("cifar10", validation=HALF, validation_from="test", normalise="imagenet")

    def prepared(self, images: Tensor) -> Tensor:
        """Return images as the network takes them."""
        assert self.set.preparation is not None
        return self.set.preparation(images)[0].contiguous(memory_format=torch.channels_last)

    def raw(self, part: str) -> tuple[Tensor, Tensor]:
        """Return 8-bit images and targets of ``"train"``, ``"fit"``, or a part of ``PARTS``."""
        if part in FOREIGN_SETS:
            (images,), targets = ood_condition(part, self.set).raw.fetch(torch.arange(FOREIGN))
            return images, targets
        source = {"train": self.set.train, "clean": self.set.test}.get(part, self.set.validation)
        assert source is not None
        count = {"train": len(self.set.train), "clean": HALF, "fit": HALF}.get(part, SHIFTED)
        (images,), targets = source.fetch(torch.arange(count))
        if part in sb.corruptions.COMMON:
            images = sb.corruptions.corrupt(images, part, SEVERITY, seed=0)
        return images, targets

    def batches(self, part: str) -> Batches:
        """Return batches that methods are fitted on."""
        images, targets = self.raw(part)
        return [(self.prepared(x), y) for x, y in zip(images.split(BATCH), targets.split(BATCH), strict=True)]


def network(name: str) -> nn.Module:
    """Return a public network."""
    net = sb.nets.CifarResNet(depth=NETWORKS[name])
    net.load_state_dict(load_file(data_folder(None) / "pretrained" / f"cifar10_{name}.safetensors"))
    return net.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _fitted(method: str, tempered: bool = False, **options: Any) -> Callable[[nn.Module, Data], sb.BayesianModel]:
    def make(net: nn.Module, data: Data) -> sb.BayesianModel:
        scaling = sb.TemperatureScaling() if tempered else None
        batches = data.batches("fit")
        searched = batches[: SEARCHED // BATCH]
        return sb.fit_posterior(
            net, batches, method, validation_batches=searched, temperature=scaling, samples=4, **options
        )

    return make


def _laplace(structure: str) -> Callable[[nn.Module, Data], sb.BayesianModel]:
    def make(net: nn.Module, data: Data) -> sb.BayesianModel:
        return sb.laplace(net, data.batches("train"), structure=structure, validation_batches=data.batches("fit"))

    return make


#: What is compared: a name, and what makes the model of a network and the data.
ROWS: dict[str, Callable[[nn.Module, Data], sb.BayesianModel]] = {
    "the network as it is": lambda net, data: sb.deterministic(net),
    "fit_posterior, rank1": _fitted("rank1"),
    "fit_posterior, rank1, output factors, with a temperature": _fitted("rank1", tempered=True, factors="output"),
    "MC dropout, rate 0.02": lambda net, data: sb.mc_dropout(net, trained=True),
    "fit_posterior, mean_field": _fitted("mean_field", prior_std=0.05, bayesian_bias=False),
    "fit_posterior, k_tied": _fitted("k_tied", prior_std=0.05, bayesian_bias=False),
    "Laplace, last layer, full": _laplace("full"),
    "Laplace, last layer, Kronecker": _laplace("kron"),
    "Laplace, last layer, diagonal": _laplace("diag"),
}


def measure(name: str, chosen: list[str]) -> None:
    """Measure what is not stored yet of the chosen rows."""
    out = RESULTS / f"{name}.json"
    stored = json.loads(out.read_text()) if out.exists() else {"rows": {}}
    stored["settings"] = {
        "draws": ENOUGH_DRAWS,
        "severity": SEVERITY,
        "corrupted images": SHIFTED,
        "foreign images": FOREIGN,
    }
    data = Data()
    for label in chosen:
        row = stored["rows"].setdefault(label, {"parts": {}})
        missing = [part for part in PARTS if part not in row["parts"]]
        if not missing:
            continue
        net = network(name)
        torch.manual_seed(0)
        begin = time.process_time()
        with torch.autocast("cpu", torch.bfloat16):
            model = ROWS[label](net, data).eval()
        seconds = time.process_time() - begin
        row.setdefault("seconds", seconds)
        row["numbers"] = sum(v.numel() for v in model.state_dict().values()) - sum(
            v.numel() for v in net.state_dict().values()
        )
        images, targets = data.raw("fit")
        scaling = sb.TemperatureScaling().fit(_predicted(model, data, images), targets)
        row["temperature"] = scaling.temperature
        row["provenance"] = provenance()
        entropies: dict[str, Tensor] = {}
        for part in missing if missing[0] == "clean" else ["clean", *missing]:
            images, targets = data.raw(part)
            bare = _predicted(model, data, images)
            both = {"bare": bare, "tempered": scaling.apply(bare)}
            if part == "clean":
                entropies = {kind: entropy_score(p) for kind, p in both.items()}
            row["parts"][part] = {
                kind: {"auroc": ood_scores(entropies[kind], entropy_score(p)).auroc.item()}
                if part in FOREIGN_SETS
                else _scores(p, targets)
                for kind, p in both.items()
            }
            out.parent.mkdir(parents=True, exist_ok=True)
            write_json(out, stored)
            print(name, label, part, row["parts"][part], flush=True)


def _predicted(model: sb.BayesianModel, data: Data, images: Tensor) -> Prediction:
    draws: list[Tensor] = []
    with torch.autocast("cpu", torch.bfloat16):
        for block in images.split(1000):
            p = model.predict(
                data.prepared(block), samples=model.default_samples, seed=len(draws), batch_size=64, keep_draws=True
            )
            draws.append(p.outputs)
    return Prediction(torch.cat(draws, 1), sb.Categorical(), model.members)


def _scores(p: Prediction, targets: Tensor) -> dict[str, float]:
    return {
        "accuracy": (p.label == targets).double().mean().item(),
        "nll": -p.log_likelihood(targets).mean().item(),
        "ece": expected_calibration_error(p.probs, targets).item(),
    }


def table(stored: dict[str, Any]) -> str:
    """Return the stored rows as a Markdown table, each bare and with its temperature."""
    heading = ["", "T", "accuracy", "NLL", "ECE", "15 corruptions: accuracy", "NLL"]
    rows = [[*heading, "AUROC CIFAR-100", "Fashion-MNIST", "CPU s", "stored numbers"]]
    for label, row in stored["rows"].items():
        for kind, temperature in (("bare", ""), ("tempered", f"{row.get('temperature', 0):.2f}")):
            parts = {part: scores[kind] for part, scores in row["parts"].items()}
            cells = [_cell(parts, ["clean"], score) for score in ("accuracy", "nll", "ece")]
            cells += [_cell(parts, list(sb.corruptions.COMMON), score) for score in ("accuracy", "nll")]
            cells += [_cell(parts, [foreign], "auroc") for foreign in FOREIGN_SETS]
            price = [f"{row['seconds']:.0f}", f"{row['numbers']:,}"] if kind == "bare" else ["", ""]
            rows.append([label if kind == "bare" else "", temperature, *cells, *price])
    return as_markdown(rows)


def verdict(stored: dict[str, Any]) -> str:
    """Return which stored rows reach what was aimed at, as a Markdown list."""
    rows = [
        (
            f"{label}, with T" if kind == "tempered" else label,
            {part: scores[kind] for part, scores in row["parts"].items()},
        )
        for label, row in stored["rows"].items()
        for kind in ("bare", "tempered")
    ]
    plain, tempered = rows[0][1], rows[1][1]

    def reach(needed: tuple[str, ...], good: Callable[[dict[str, Any]], bool]) -> str:
        found = [label for label, parts in rows if set(needed) <= set(parts) and good(parts)]
        return "; ".join(found) or "no row"

    def shifted(parts: dict[str, Any]) -> float:
        return sum(parts[part]["nll"] for part in sb.corruptions.COMMON) / len(sb.corruptions.COMMON)

    def clean(parts: dict[str, Any]) -> bool:
        scores = parts["clean"]
        return bool(scores["accuracy"] >= 0.917 and scores["nll"] <= 0.225 and scores["ece"] <= 0.010)

    aims = [f"- NLL <= 0.225 and ECE <= 0.010 at an accuracy >= 0.917: {reach(('clean',), clean)}."]
    if set(sb.corruptions.COMMON) <= set(tempered):
        most = 0.85 * shifted(tempered)
        found = reach(sb.corruptions.COMMON, lambda parts: shifted(parts) <= most)
        aims.append(f"- Corruptions, an NLL 15% below that of a temperature, <= {most:.3f}: {found}.")
    if set(FOREIGN_SETS) <= set(plain):
        found = reach(
            FOREIGN_SETS, lambda parts: all(parts[one]["auroc"] > plain[one]["auroc"] for one in FOREIGN_SETS)
        )
        aims.append(f"- Both AUROCs above the bare network's: {found}.")
    return "\n".join(aims)


def _cell(parts: dict[str, Any], chosen: list[str], score: str) -> str:
    """Return a mean over parts, if all of them are there."""
    if not all(part in parts for part in chosen):
        return ""
    return f"{sum(parts[part][score] for part in chosen) / len(chosen):.3f}"


def main(name: str = "", *chosen: str) -> None:
    """Measure rows of a network, if one is named; then put the tables on their page."""
    if name:
        measure(name, list(chosen) or list(ROWS))
    found = [(one, json.loads(path.read_text())) for one in NETWORKS if (path := RESULTS / f"{one}.json").exists()]
    text = "\n\n".join(
        f"**ResNet-{NETWORKS[one]}**\n\n{table(stored)}\n\nAimed at, and reached by:\n\n{verdict(stored)}"
        for one, stored in found
    )
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
