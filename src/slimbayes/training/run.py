"""A run's folder: what was asked for, what it depended on, what came out.

======================  =======================================================================
``config.yaml``         the effective configuration
``run.json``            seed, commit, versions, hardware, parameters, the task, its data's fingerprint and preparation
``metrics.jsonl``       a line every few steps and every epoch
``checkpoints/``        the best and the last model, each a folder that ``sb.load`` reads
``result.json``         written when the run is finished: the scores
======================  =======================================================================
"""

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from slimbayes._checks import check_choice, check_count, check_number
from slimbayes._files import read_json, replacing, with_checksum, write_json
from slimbayes.data.dataset import TASKS, DataSet, Task
from slimbayes.data.fingerprint import differences, fingerprint
from slimbayes.data.folders import MissingData
from slimbayes.data.preparation import Preparation, get_preparation
from slimbayes.model import BayesianModel
from slimbayes.pretrained import load
from slimbayes.training.checkpoints import Checkpoints
from slimbayes.training.config import TrainConfig
from slimbayes.training.models import configured_data, network_task
from slimbayes.training.networks import build_network, check_trusted
from slimbayes.training.parsing import as_yaml, parse_config, read_yaml

__all__ = ["Run"]

#: Before the last line of a stored configuration says what the others were.
CHECKSUM = "# sha256 of the lines above: "
TRAIN_AGAIN = "Copy the run again, or train it anew in another folder."

#: Where configurations of before gave a number for what is now left open, with the same training.
WAS = {"evaluation.samples": 1}
#: What may differ between a run and its continuation.
FREE = {
    "epochs",
    "steps",
    "max_seconds",
    "log_every",
    "trackers",
    "data.workers",
    "data.folder",
    "evaluation.batch_size",
}


class Run:
    """A finished or unfinished run.

    Nothing that is stored in the folder runs code, unless it is named in ``trust``.

    Args:
        folder: Its folder.
        trust: Code that the run's configuration may name as its network: ``package.module:function``, several of them,
            or ``package.module`` for what that module defines.
        net: The plain network, instead of the one that the configuration names.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        trust: str | Iterable[str] = (),
        net: torch.nn.Module | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.trust = {trust} if isinstance(trust, str) else set(trust)
        self.net = net
        self.checkpoints = Checkpoints(self.folder / "checkpoints")

    @classmethod
    def open(
        cls, folder: str | os.PathLike[str], trust: str | Iterable[str] = (), net: torch.nn.Module | None = None
    ) -> "Run":
        """Return the run in a folder, or raise if there is none; see the class for the arguments."""
        run = cls(folder, trust, net)
        if not run.exists():
            raise FileNotFoundError(f"There is no run in {run.folder}. Give a folder that `slimbayes train` wrote.")
        return run

    def exists(self) -> bool:
        """Tell whether the folder holds a run."""
        return (self.folder / "config.yaml").is_file()

    @cached_property
    def config(self) -> TrainConfig:
        """The effective configuration."""
        path = self.folder / "config.yaml"
        content = read_yaml(path)
        text, found, checksum = path.read_text().rpartition(CHECKSUM)
        if found and checksum.strip() != _sha256(text):
            raise ValueError(
                f"{path} is damaged, or was changed by hand: its last line is not its SHA-256. {TRAIN_AGAIN} If the "
                "change is meant, remove that line."
            )
        return parse_config(content)

    @cached_property
    def about(self) -> dict[str, Any]:
        """What ``run.json`` holds."""
        path = self.folder / "run.json"
        if not path.is_file():
            raise FileNotFoundError(f"There is no file {path}, which every run has. {TRAIN_AGAIN}")
        return read_json(path, TRAIN_AGAIN, ("task", "preparation"))

    @property
    def data(self) -> dict[str, Any] | None:
        """The fingerprint of its data; None if nothing was stored yet, or by an older version."""
        return self.about.get("data") if (self.folder / "run.json").is_file() else None

    @property
    def task(self) -> Task:
        """What is predicted."""
        stored = self.about["task"]
        try:
            classes = None if stored["classes"] is None else tuple(stored["classes"])
            task = Task(**{**stored, "input_shape": tuple(stored["input_shape"]), "classes": classes})
            return _checked(task)
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"{self.folder / 'run.json'} has a damaged `task`: {error} {TRAIN_AGAIN}") from error

    @property
    def preparation(self) -> Preparation:
        """How raw inputs become the network's."""
        try:
            return get_preparation(self.about["preparation"])
        except (TypeError, KeyError, ValueError) as error:
            where = self.folder / "run.json"
            raise ValueError(f"{where} has a damaged `preparation`: {error} {TRAIN_AGAIN}") from error

    @property
    def result(self) -> dict[str, Any] | None:
        """The scores, or None if the run is not finished."""
        path = self.folder / "result.json"
        remedy = "Remove it, and train with --resume: it is written anew."
        return read_json(path, remedy) if path.is_file() else None

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl``; one that was cut off while being written is left out."""
        path = self.folder / "metrics.jsonl"
        try:
            lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
            return [json.loads(line) for line in lines if line.endswith("\n")]
        except ValueError as error:
            raise ValueError(f"{path} is damaged: {error}. Remove the lines that are not JSON.") from error

    def model(self, which: str = "best") -> BayesianModel:
        """Return the ``"best"`` or the ``"last"`` model, in evaluation mode."""
        checkpoint, net = self.checkpoints.path(which), self.network()
        try:
            with torch.random.fork_rng():  # conversion draws what is then overwritten
                return load(checkpoint, net).eval()
        except ValueError as error:  # about what `sb.load` is given, which here are files
            raise _of_files(checkpoint, error) from error

    def network(self) -> torch.nn.Module:
        """Return the plain network as it was before training; the global generators are left alone.

        Raises:
            ValueError: It is not one of slimbayes, and nobody has named it in ``trust``.
        """
        if self.net is not None:
            return self.net
        check_trusted(self.config.net, self.trust, self.folder / "config.yaml")
        with torch.random.fork_rng():
            torch.manual_seed(self.config.seed)
            # A checkpoint has all weights, unless the base was frozen.
            frozen = self.config.method.options.get("freeze_base", False)
            net = self.config.net if frozen else self.config.net.model_copy(update={"weights": None})
            try:
                return build_network(net, network_task(self.config, self.task))
            except ValueError as error:
                raise _of_files(self.folder, error) from error

    # ------------------------------------------------------------------ writing

    def begin(self, about: dict[str, Any], task: Task, preparation: Preparation) -> None:
        """Write what the run starts from."""
        content = {**about, "task": asdict(task), "preparation": preparation.spec()}
        write_json(self.folder / "run.json", with_checksum(content))
        self.__dict__.pop("about", None)

    def store_config(self, config: TrainConfig) -> None:
        """Write the effective configuration; from now on the folder holds a run."""
        text = as_yaml(config.as_json())
        with replacing(self.folder / "config.yaml") as (temporary,):
            temporary.write_text(f"{text}{CHECKSUM}{_sha256(text)}\n")
        self.__dict__.pop("config", None)

    def check_same(self, config: TrainConfig) -> None:
        """Raise unless a run can be continued under this configuration."""
        before, now = _flat(self.config.as_json()), _flat(config.as_json())
        for key, value in WAS.items():
            if now[key] is None and before.get(key) == value:
                before[key] = None
        keys = sorted(key for key in before.keys() | now.keys() if key not in FREE and before.get(key) != now.get(key))
        if keys:
            changes = "; ".join(f"{key} was {before.get(key)!r}, now {now.get(key)!r}" for key in keys[:5])
            raise ValueError(
                f"The run in {self.folder} was started with another configuration: {changes}. Continue it with the "
                "same, or give another folder."
            )

    def check_data(self, data: DataSet) -> None:
        """Raise unless the data are those that the run was started with; warn if it does not know, as old runs."""
        stored = self.data
        if stored is None:
            warnings.warn(
                f"{self.folder / 'run.json'} has no fingerprint of its data, as it was written by an older version: "
                "that they have not changed since is not checked.",
                stacklevel=3,
            )
            return
        stored = {"task": self.about["task"], **stored}  # fingerprints of earlier versions have none
        changes = differences(stored, fingerprint(data), self.about["preparation"], data.preparation.spec())
        if changes:
            path = self.config.data.options.get("path")
            what = f"the data {data.name!r}" if path is None else f"{path} (data.path)"
            raise ValueError(
                f"The run in {self.folder} was trained on other data: of {what}, {'; '.join(changes)}. Its scaling and "
                "its scores belong to the old ones. Give back the old data, or train in another folder; for "
                "predictions on new rows use slimbayes predict."
            )

    def check_data_if_there(self, config: TrainConfig) -> None:
        """Raise if the run was trained on other data than those that a configuration finds; none is no fault."""
        with suppress(MissingData):
            self.check_data(configured_data(config))

    def check_unchanged(self, config: TrainConfig) -> None:
        """Raise unless a fresh run under this configuration would be the one in the folder; its length counts."""
        self.check_same(config)
        before, now = self.config.length, config.length
        if before != now:  # a run that is made longer is not what a fresh one would have been
            raise ValueError(f"The run in {self.folder} was started with another length: {before}, now {now}.")

    def check_free(self) -> None:
        """Raise if the folder holds files of names that a run writes to, but no run."""
        found = [name for name in ("checkpoints", "metrics.jsonl", "result.json") if (self.folder / name).exists()]
        if found and not self.exists():
            raise FileExistsError(
                f"{self.folder} holds {' and '.join(found)}, but no config.yaml, so that they are not of a run that "
                "could go on: training would write over them. Give another folder, or move them away."
            )

    def check_writable(self, size: int) -> None:
        """Raise unless the folder can be written to and has room for three checkpoints of ``size`` bytes."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe = self.folder / f".probe.{os.getpid()}"
            probe.write_bytes(b"slimbayes")
            probe.unlink()
        except OSError as error:
            raise OSError(f"Cannot write to {self.folder}: {error.strerror or error}. Give another folder.") from error
        free = shutil.disk_usage(self.folder).free
        if free < 3 * size:
            raise OSError(
                f"The disk of {self.folder} has {free / 2**20:.0f} MiB left, but three checkpoints of this model need "
                f"{3 * size / 2**20:.0f} MiB. Make room, or give a folder on another disk."
            )

    def tidy(self) -> None:
        """Remove what no longer holds once the run goes on: its result, and files that a kill left half written."""
        (self.folder / "result.json").unlink(missing_ok=True)
        for path in self.folder.iterdir():
            if re.fullmatch(
                r"\.(probe|config\.yaml|run\.json|metrics\.jsonl|result\.json|evaluation\.json)\.([\w.-]+-)?\d+",
                path.name,
            ):
                path.unlink(missing_ok=True)

    def cut_metrics(self, epoch: int) -> None:
        """Leave out lines of epochs that are to be run again: those from ``epoch`` on, counted from 0."""
        kept = [line for line in self.metrics if line["epoch"] <= epoch]
        with replacing(self.folder / "metrics.jsonl") as (temporary,):
            temporary.write_text("".join(json.dumps(line) + "\n" for line in kept))


def _checked(task: Task) -> Task:
    """Return a task that was stored, or raise an error that names what it cannot have."""
    check_choice("likelihood", task.likelihood, TASKS)
    check_count("outputs", task.outputs)
    for size in task.input_shape:
        check_count("input_shape", size)
    check_number("target_mean", task.target_mean)
    check_number("target_std", task.target_std, 0.0)
    if task.classes is not None and len(task.classes) < task.outputs:
        raise ValueError(f"there are {task.outputs} outputs, but {len(task.classes)} classes.")
    return task


def _of_files(path: Path, error: ValueError) -> ValueError:
    """Return an error that says where what it speaks of was stored."""
    return error if str(path) in str(error) else ValueError(f"{path} does not fit together. {error}")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _flat(content: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(content, dict):
        return {prefix[:-1]: content}
    return {key: value for name, inner in content.items() for key, value in _flat(inner, f"{prefix}{name}.").items()}
