"""Checkpoints that are whole or not there: the last one and the best one by validation NLL.

A run folder has ``checkpoints/index.json``, which names the two; each is a folder that appears under its name only
when every file in it is on the disk. Killed at any moment, a run finds the last complete epoch.
"""

import os
import random
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor

from slimbayes._files import read_json, sha256_of, to_disk, with_checksum, write_json
from slimbayes.model import BayesianModel

__all__ = ["Checkpoints", "Index", "random_state", "restore_random_state"]

STATE = "state.pt"
#: What `sha256sum` prints of it.
STATE_SUM = f"{STATE}.sha256"
#: Names of checkpoints, of their drafts, and of drafts of the index.
OURS = re.compile(r"\.?(epoch|members)-\d{5,}|\.index\.json\.([\w.-]+-)?\d+")


class Index(NamedTuple):
    """Which checkpoints there are.

    Attributes:
        last: Name of the latest one.
        best: Name of the one with the lowest validation NLL; the latest one if nothing is validated.
        epoch: Epochs after which the latest one was written.
        nll: The lowest validation NLL.
    """

    last: str
    best: str
    epoch: int
    nll: float | None = None


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: Their folder, ``RUN/checkpoints``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def index(self) -> Index | None:
        """Return which checkpoints there are, or None if there is none yet."""
        path = self.folder / "index.json"
        if not path.is_file():
            return None
        remedy = "Copy the run again, or train it anew in another folder."
        content = read_json(path, remedy, ("last", "best", "epoch"))
        if unknown := sorted(content.keys() - set(Index._fields)):
            raise ValueError(f"{path} is damaged: it has the unknown {', '.join(unknown)}. {remedy}")
        for key in ("last", "best"):
            name = content[key]
            if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*", name) or (self.folder / name).is_symlink():
                raise ValueError(
                    f"{path} names {name!r} as the {key} checkpoint, which is no folder beside it. A run's checkpoints "
                    f"are in the run. {remedy}"
                )
        if isinstance(content["epoch"], bool) or not isinstance(content["epoch"], int) or content["epoch"] < 0:
            raise ValueError(f"{path} is damaged: `epoch` is {content['epoch']!r}. {remedy}")
        nll = content.get("nll")
        if nll is not None and (isinstance(nll, bool) or not isinstance(nll, (int, float))):
            raise ValueError(f"{path} is damaged: `nll` is {nll!r}. {remedy}")
        return Index(**content)

    def path(self, which: str = "best") -> Path:
        """Return the folder of the ``"best"`` or the ``"last"`` checkpoint."""
        index = self.index()
        if index is None:
            raise FileNotFoundError(f"There is no checkpoint in {self.folder}: no epoch has been completed yet.")
        folder = self.folder / getattr(index, which)
        if not folder.is_dir():
            raise FileNotFoundError(
                f"There is no {folder}, which {self.folder / 'index.json'} names as the {which} checkpoint. Copy the "
                "run again."
            )
        return folder

    def save(self, model: BayesianModel, state: dict[str, Any], epoch: int, nll: float | None) -> Index:
        """Write a checkpoint, then the index, then remove what the index no longer names.

        Args:
            model: Its weights.
            state: Tensors and plain values: optimiser, schedule, generators.
            epoch: Epochs completed.
            nll: On the validation examples; None if they were not scored.
        """
        name, before = f"epoch-{epoch:05d}", self.index()
        if before is None or before.nll is None or (nll is not None and nll < before.nll):
            index = Index(name, name, epoch, nll)
        else:
            index = Index(name, before.best, epoch, before.nll)
        return self._commit(index, model, state)

    def put(self, name: str, model: BayesianModel, epoch: int, nll: float | None) -> Index:
        """Write a model that was put together from trained ones, in the place of what there is."""
        return self._commit(Index(name, name, epoch, nll), model, None)

    def _commit(self, index: Index, model: BayesianModel, state: dict[str, Any] | None) -> Index:
        try:
            self._write(index.last, model, state)
            self._write_index(index)
        except (OSError, RuntimeError, SafetensorError) as error:  # torch and safetensors have errors of their own
            self.clean(self.index())
            raise OSError(f"Cannot write {self.folder / index.last}: {error}. {self.last_good()}") from error
        self.clean(index)
        return index

    def _write(self, name: str, model: BayesianModel, state: dict[str, Any] | None) -> None:
        draft = self.folder / f".{name}"
        for stale in (draft, self.folder / name):  # left by a run that was killed here
            shutil.rmtree(stale, ignore_errors=True)
        draft.mkdir(parents=True)
        model.save_pretrained(draft)
        if state is not None:
            torch.save(state, draft / STATE)
            (draft / STATE_SUM).write_text(f"{sha256_of(draft / STATE)}  {STATE}\n")
        for path in (*draft.iterdir(), draft):
            to_disk(path)
        os.rename(draft, self.folder / name)

    def _write_index(self, index: Index) -> None:
        write_json(self.folder / "index.json", with_checksum(index._asdict()))
        to_disk(self.folder)

    def last_good(self) -> str:
        """Return a sentence that names the last checkpoint."""
        index = self.index()
        if index is None:
            return "No checkpoint has been written yet."
        return f"The last good checkpoint is {self.folder / index.last} (epoch {index.epoch})."

    def clean(self, index: Index | None) -> None:
        """Remove drafts and checkpoints that the index does not name; what others keep in the folder stays."""
        kept = set() if index is None else {index.last, index.best}
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if OURS.fullmatch(path.name) and path.name not in kept and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    def state(self) -> dict[str, Any]:
        """Return the state that was stored with the last checkpoint."""
        path = self.path("last") / STATE
        if not path.is_file():
            raise FileNotFoundError(
                f"There is no {path}: the model was put together from others, and cannot be trained on as a whole."
            )
        checksum, remedy = path.with_name(STATE_SUM), "Copy the run again, or train it anew in another folder."
        if checksum.is_file() and checksum.read_text().split()[:1] != [sha256_of(path)]:
            raise ValueError(f"{path} is damaged: it is not what was written (SHA-256 in {STATE_SUM}). {remedy}")
        try:
            return torch.load(path, "cpu", weights_only=True)
        except Exception as error:  # a damaged file raises one of many kinds, and torch advises to unpickle it
            raise ValueError(f"{path} is damaged, or holds other than tensors and plain values. {remedy}") from error


def random_state() -> dict[str, Any]:
    """Return the states of Python's, NumPy's and torch's global generators, as tensors and plain values.

    Example:
        >>> state = random_state()
        >>> drawn = torch.rand(3)
        >>> restore_random_state(state)
        >>> torch.equal(torch.rand(3), drawn)
        True
    """
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002
    state: dict[str, Any] = {
        "python": [version, list(words), gauss],
        "numpy": [str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    """Set the global generators."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, _words(keys), position, has_gauss, cached))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def _words(keys: Tensor) -> Any:
    return keys.numpy().astype(np.uint32)
