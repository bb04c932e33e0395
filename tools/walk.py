"""Prints the files that a forward pass, the loss and the backward pass visit, in order, with ``_fast`` switched off.

    python tools/walk.py

docs/how-it-works.md follows the same files, and a test holds the page against this list.
"""

import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

os.environ["SLIMBAYES_NO_FAST"] = "1"

import torch
from torch import nn

import slimbayes as sb

SOURCE = Path(sb.__file__).parent


def walk() -> list[str]:
    """Return the files of slimbayes in the order in which a train step first enters them."""
    torch.manual_seed(0)
    model = sb.rank1(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)), members=4)
    elbo = sb.ELBO(model, num_data=100)
    x, y = torch.randn(6, 8), torch.randint(3, (6,))
    elbo(model(x), y).backward()  # the first pass makes checks that later ones do not
    visited: dict[str, None] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            visited.setdefault(path.relative_to(SOURCE).as_posix())

    sys.setprofile(note)
    try:
        elbo(model(x), y).backward()
    finally:
        sys.setprofile(None)
    return list(visited)


if __name__ == "__main__":
    print("\n".join(walk()))
