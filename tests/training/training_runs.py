"""Short runs for the tests of training, and what is left of them."""

from pathlib import Path
from typing import Any

DIGITS = {"name": "digits", "train_limit": 200, "evaluation_limit": 100}
MLP = {"name": "mlp", "hidden": [16]}


def small(**changes: Any) -> dict[str, Any]:
    """Return a configuration that trains in a fraction of a second: 4 steps an epoch, the last of 8 examples."""
    return {"data": DIGITS, "net": MLP, "method": "rank1", "epochs": 3, "batch_size": 64, "log_every": 1, **changes}


def weights(folder: Path, epoch: int) -> bytes:
    """Return the weights of a checkpoint as they are on the disk."""
    return (folder / "checkpoints" / f"epoch-{epoch:05d}" / "model.safetensors").read_bytes()
