"""What posteriors add to the papers' networks: ``python -m reproductions.count_parameters OUT.json``."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import slimbayes as sb
from slimbayes._files import write_json
from slimbayes._provenance import provenance

__all__ = ["count", "count_k_tied"]

NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "WRN-28-10, CIFAR-10": lambda: sb.nets.wide_resnet("28-10", 10),
    "WRN-28-10, CIFAR-100": lambda: sb.nets.wide_resnet("28-10", 100),
    "ResNet-50, ImageNet": sb.nets.resnet50,
}


def count() -> list[dict[str, Any]]:
    """Return the parameters of each network, plain and with 1, 4 and 10 members, running statistics counted."""
    rows = []
    with torch.device("meta"):  # shapes alone: no weights are made
        for name, build in NETWORKS.items():
            plain = sb.count_parameters(build(), running_statistics=True)
            for family in ("delta", "normal"):
                for members in (1, 4, 10):
                    model = sb.rank1(build(), members=members, family=family)
                    parameters = sb.count_parameters(model, running_statistics=True)
                    added = round(100 * (parameters / plain - 1), 2)
                    row = {"network": name, "family": family, "members": members, "plain": plain}
                    rows.append({**row, "parameters": parameters, "added_percent": added})
    return rows


#: The networks of the k-tied paper's Figure 6 and Table 5, with the options of appendix D.
K_TIED: dict[str, tuple[Callable[[], nn.Module], dict[str, Any], dict[str, Any]]] = {
    "MLP, MNIST": (lambda: sb.nets.MLP(784, [400, 400], 10), {}, {}),
    "LeNet, CIFAR-100": (sb.nets.LeNet, {}, {"untied": nn.Conv2d}),
    "LSTM, IMDB": (sb.nets.SequenceClassifier, {"include": "lstm", "bayesian_bias": False}, {}),
    "ResNet-18, CIFAR-10": (sb.nets.ResNet4, {"bayesian_bias": False}, {}),
}


def count_k_tied() -> list[dict[str, Any]]:
    """Return the parameters of each network, mean-field and 1, 2 and 3-tied, running statistics counted."""
    rows = []
    with torch.device("meta"):
        for name, (build, options, tied_options) in K_TIED.items():
            models = {"mean-field": sb.mean_field(build(), **options)}
            models |= {f"{k}-tied": sb.k_tied(build(), k=k, **options, **tied_options) for k in (1, 2, 3)}
            rows += [
                {"network": name, "method": method, "parameters": sb.count_parameters(model, running_statistics=True)}
                for method, model in models.items()
            ]
    return rows


if __name__ == "__main__":
    write_json(Path(sys.argv[1]), {**provenance(), "rows": count(), "k_tied": count_k_tied()})
