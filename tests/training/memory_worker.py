"""Trains and prints the peak memory after given epochs, in MiB."""

import json
import resource
import sys
from pathlib import Path

import torch
from training_runs import MLP

from slimbayes.training import fit
from slimbayes.training._progress import Progress

peaks: dict[int, float] = {}
show = Progress.show


def measured(self: Progress, epoch: int, *args: object) -> None:
    peaks[epoch] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    show(self, epoch, *args)


if __name__ == "__main__":
    Progress.show = measured
    torch.set_num_threads(1)
    config = {"data": "digits", "net": MLP, "epochs": int(sys.argv[3]), "batch_size": 16, "log_every": 1}
    config["data"] = {"name": "digits", "workers": int(sys.argv[2])}
    fit(config, Path(sys.argv[1]), quiet=True)
    print(json.dumps(peaks))
