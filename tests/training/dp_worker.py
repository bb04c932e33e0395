"""What each process of test_data_parallel.py does: one run after another, and a report of what it saw."""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from slimbayes.training import fit
from slimbayes.training.loop import Loop


class Interrupted(Exception):  # noqa: N818
    """Stands for whatever ends a run."""


def normed() -> nn.Module:
    """Return a network whose statistics every process collects on its own examples."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))


def watch_writes(folder: Path) -> list[str]:
    """Return a list to which every change of the folder by this process is added."""
    seen: list[str] = []

    def look(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and not (isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            return
        changes = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree")
        if event in changes and str(args[0]).startswith(str(folder)):
            seen.append(f"{event} {args[0]}")

    sys.addaudithook(look)
    return seen


def train(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Do a run, perhaps interrupted; return the outputs of the first step's model and a hash of the last one's."""
    step, seen = Loop.step, {}

    def watched(self: Loop, *args: Any) -> int:
        if self.elbo.steps + 1 == job.get("interrupt"):
            raise Interrupted
        if "outputs" not in seen:
            with torch.random.fork_rng(), torch.no_grad():
                seen["outputs"] = self.elbo.model(torch.ones(3, 1, 8, 8)).flatten().tolist()
        examples = step(self, *args)
        digest = hashlib.sha256()
        for parameter in self.elbo.model.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        seen["weights"] = digest.hexdigest()
        return examples

    Loop.step = watched
    try:
        fit(job["config"], folder / job["name"], resume=job.get("resume", False), quiet=True)
    except Interrupted:
        assert "interrupt" in job
    finally:
        Loop.step = step
    return seen


if __name__ == "__main__":
    torch.set_num_threads(1)
    place, rank = Path(sys.argv[1]), os.environ["RANK"]
    writes = watch_writes(place / "runs")
    seen = [train(job, place / "runs") for job in json.loads((place / "jobs.json").read_text())]
    (place / f"rank{rank}.json").write_text(json.dumps({"jobs": seen, "writes": writes}))
