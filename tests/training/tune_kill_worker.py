"""Kills real processes that tune. It imports torch once and forks, as ``kill_worker`` does."""

import gc
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from kill_worker import in_child, killed
from training_runs import small, weights

from slimbayes.data.registry import load_data
from slimbayes.training import Run
from slimbayes.training.tuning import Tuning, tune

EPOCHS = 6


def content(trials: int) -> dict[str, Any]:
    space = {"optimiser.lr": {"low": 1e-4, "high": 0.1, "log": True}, "net.hidden": {"width": [4, 16], "depth": [1, 2]}}
    return small(epochs=EPOCHS, tune={"trials": trials, "space": space})


def kill_at_random(folder: Path, trials: int, kills: int) -> dict[str, Any]:
    """Tune once without and once with kills; the trials must be the same, to the last bit of their weights."""
    generator, done, ended = random.Random(0), 0, False
    assert not killed(in_child(lambda: store(tune(content(trials), folder / "whole"), folder / "whole.json")))
    while not ended:
        process = in_child(lambda: store(tune(content(trials), folder / "killed"), folder / "killed.json"))
        if done < kills:
            time.sleep(generator.uniform(0.05, 1.5))
            os.kill(process, signal.SIGKILL)
        ended = not killed(process)
        done += not ended
    whole, found = (json.loads((folder / f"{name}.json").read_text()) for name in ("whole", "killed"))
    assert whole == found
    for row in whole:
        runs = [Run(folder / name / row["folder"]) for name in ("whole", "killed")]
        assert [run.result is None for run in runs] == [row["state"] != "finished"] * 2
        epochs = [run.checkpoints.index().epoch for run in runs]
        assert epochs[0] == epochs[1]
        assert weights(runs[0].folder, epochs[0]) == weights(runs[1].folder, epochs[0])
        assert all(run.result is None or run.result["test"] is None for run in runs)
    return {"kills": done, "states": [row["state"] for row in found]}


def store(tuning: Tuning, path: Path) -> None:
    path.write_text(json.dumps(tuning.rows))


if __name__ == "__main__":
    torch.set_num_threads(1)
    load_data("digits")
    gc.collect()
    gc.freeze()
    print(json.dumps(kill_at_random(Path(sys.argv[1]), 10, 12)))
