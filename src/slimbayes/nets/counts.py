"""What Bayesian factors add to the papers' networks: ``python -m slimbayes.nets.counts OUT.json``."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import slimbayes as sb
from slimbayes.provenance import provenance

__all__ = ["count"]

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


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps({**provenance(), "rows": count()}, indent=2) + "\n")
