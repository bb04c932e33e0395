"""Models to evaluate, from the folders of runs and of saved models."""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from slimbayes.data.fingerprint import fingerprint
from slimbayes.evaluation.record import FILE
from slimbayes.evaluation.subject import Subject, title_of
from slimbayes.pretrained import load
from slimbayes.training.config import TrainConfig
from slimbayes.training.models import configured_data, network_task
from slimbayes.training.networks import build_network
from slimbayes.training.run import Run

__all__ = ["find_runs", "load_subject"]

#: What does not tell two methods apart: settings of a run that change no result.
INCIDENTAL = {"seed", "log_every", "trackers", "evaluation", "device", "folder", "workers"}


def find_runs(folders: Iterable[Path]) -> list[Path]:
    """Return the given folders, those of grids replaced by the runs in them; each once."""
    found: dict[Path, Path] = {}
    for folder in folders:
        inside = [path.parent for path in sorted(folder.glob("*/config.yaml"))]
        one = any((folder / name).is_file() for name in ("config.yaml", "config.json", FILE))
        for path in [folder] if one or not inside else inside:
            found.setdefault(path.resolve(), path)
    return list(found.values())


def load_subject(
    folder: str | os.PathLike[str],
    *,
    config: TrainConfig | None = None,
    which: str = "best",
    title: str | None = None,
    data_folder: str | os.PathLike[str] | None = None,
    trust: str | Iterable[str] = (),
    net: nn.Module | None = None,
) -> Subject:
    """Return the model of a run, or a saved one.

    Args:
        folder: What ``slimbayes train`` wrote, or ``model.save_pretrained``.
        config: For a saved model: its data set and network.
        which: The ``"best"`` or the ``"last"`` checkpoint of a run.
        title: What tables call it; by default its method.
        data_folder: Where the data sets are, if not where the run found them.
        trust: Code that a run may name as its network; see ``Run``.
        net: The plain network, instead of the one that the configuration names.
    """
    folder = Path(folder)
    run = Run(folder, trust, net)
    if run.exists():
        checkpoint, config, training = run.checkpoints.path(which), run.config, _epochs(run)
        model, data = run.model(which), configured_data(config, data_folder)
        run.check_data(data)
        found, data = fingerprint(data), replace(data, preparation=run.preparation, task=run.task)
    elif (folder / "config.json").is_file():
        if config is None:
            raise ValueError(
                f"{folder} holds a saved model, which does not know its data set and network. Give a configuration "
                "of slimbayes train that has them: --config config.yaml"
            )
        checkpoint, training, data = folder, [], configured_data(config, data_folder)
        found = fingerprint(data)
        with torch.random.fork_rng():
            built = build_network(config.net, network_task(config, data.task)) if net is None else net
            model = load(folder, built).eval()
    else:
        raise FileNotFoundError(
            f"There is neither a run nor a saved model in {folder}. Give a folder that `slimbayes train` or "
            "`model.save_pretrained` wrote."
        )
    if config.device == "auto" and torch.cuda.is_available():
        model = model.to("cuda")
    if config.channels_last and any(isinstance(part, torch.nn.Conv2d) for part in model.modules()):
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Subject(
        model,
        data,
        folder.resolve().name,
        title or title_of(model),
        config.seed,
        folder,
        _identity(config),
        training,
        _digest(checkpoint),
        config.data.folder if data_folder is None else Path(data_folder),
        found,
    )


def _identity(config: TrainConfig) -> dict[str, Any]:
    content = {key: value for key, value in config.as_json().items() if key not in INCIDENTAL}
    return {**content, "data": {key: value for key, value in content["data"].items() if key not in INCIDENTAL}}


def _epochs(run: Run) -> list[dict[str, Any]]:
    wanted = ("epoch", "train", "validation")
    return [{key: line[key] for key in wanted} for line in run.metrics if "train" in line]


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    return digest.hexdigest()
