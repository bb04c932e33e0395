"""How much memory a run will need, and how much there is."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from slimbayes._chunks import evaluating
from slimbayes.data.dataset import DataSet
from slimbayes.model import BayesianModel
from slimbayes.training.config import Net, TrainConfig
from slimbayes.training.models import network_task
from slimbayes.training.networks import build_network

__all__ = ["IGNORE", "Memory", "check_memory", "check_network_size", "expected_memory", "free_memory"]

#: Set to 1, it lets a run begin that is expected to need more memory than there is.
IGNORE = "SLIMBAYES_IGNORE_MEMORY"
#: Numbers that an optimiser keeps for each parameter.
MOMENTS = {"adam": 2, "adamw": 2, "sgd": 1, "sgld": 0, "sghmc": 1}
#: What the backward pass and copies of the memory need for a while, as a share of what is kept; 0.07 to 0.13 were
#: measured of convolutional networks whose steps keep 2 to 6 GiB.
TEMPORARY = 0.15
#: Examples that are sent through the network to see what it keeps.
TRIED = 2


class Memory(NamedTuple):
    """Bytes that a run is expected to need at once.

    Attributes:
        weights: Parameters, their gradients and what the optimiser keeps.
        activations: What the layers keep of one part of a step until its gradient is known.
    """

    weights: int
    activations: int

    @property
    def temporary(self) -> int:
        """What is needed for a while on top, such as gradients of activations."""
        return int(TEMPORARY * (self.weights + self.activations))

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.activations + self.temporary


def expected_memory(config: TrainConfig, model: BayesianModel, data: DataSet) -> Memory:
    """Estimate what training needs, from what two examples leave behind for the backward pass.

    Torch's global generators, and the model, are as before.
    """
    trained = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    weights = sum(p.nbytes for p in model.parameters()) + (1 + MOMENTS[config.optimiser.name]) * trained
    inputs, _ = data.train.fetch(torch.arange(min(TRIED, len(data.train))))
    if data.augmentation is not None:
        inputs = data.augmentation(inputs, torch.Generator().manual_seed(0))
    prepared = tuple(x.to(model.device) for x in data.preparation(*inputs))
    rows = -(-min(config.batch_size, len(data.train)) // config.accumulate)
    kept: dict[int, int] = {}
    own = {p.untyped_storage().data_ptr() for p in (*model.parameters(), *model.buffers())}

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return x

    checked, model._checked = model._checked, True
    try:
        # Norm layers keep their statistics. A posterior that has collected nothing yet runs its members.
        with evaluating(model), torch.random.fork_rng(), torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            model(*prepared, samples=int(model.ready))
    except RuntimeError:  # torch.func.vmap has no such hooks; what else is wrong shows in training
        kept.clear()
    finally:
        model._checked = checked
    parts = model.members if model.options.get("train_on") == "split" else 1
    return Memory(weights, sum(kept.values()) * rows // (parts * max(1, len(prepared[0]))))


def check_memory(config: TrainConfig, model: BayesianModel, data: DataSet, quiet: bool) -> None:
    """Say how large the model is and what it needs; raise if that is more than there is."""
    needed, free = expected_memory(config, model, data), free_memory(model.device)
    parameters = sum(p.numel() for p in model.parameters())
    kept = f"weights and optimiser {_size(needed.weights)}, a step's activations {_size(needed.activations)}"
    parts = f"{kept}, temporary {_size(needed.temporary)}"
    there = "" if free is None else f"; {_size(free)} are free"
    if not quiet:
        line = f"{parameters:,} parameters; expected memory {_size(needed.total)} ({parts}){there}"
        print(line, file=sys.stderr, flush=True)
    _refuse(needed.total, free, f"{parameters:,} parameters: {parts}", data)


def check_network_size(config: Net, run: TrainConfig, data: DataSet) -> None:
    """Raise before a network is built whose weights alone do not fit; those of one's own are built unseen."""
    free = free_memory(torch.device("cpu"))
    if ":" in config.name or free is None:
        return
    try:
        with torch.random.fork_rng(), torch.device("meta"):
            net = build_network(config.model_copy(update={"weights": None}), network_task(run, data.task))
    except (RuntimeError, NotImplementedError, TypeError):  # it cannot be built without memory
        return
    numbers = sum(p.numel() for p in net.parameters())
    _refuse(4 * numbers * (2 + MOMENTS[run.optimiser.name]), free, f"{numbers:,} parameters before any method", data)


def _refuse(needed: int, free: int | None, what: str, data: DataSet) -> None:
    if free is None or needed <= free or os.environ.get(IGNORE) == "1":
        return
    raise ValueError(
        f"This run is expected to need {_size(needed)} of memory ({what}), but {_size(free)} are free. An example has "
        f"the shape {data.task.input_shape}. Use a smaller network or smaller inputs (data.size, for images), a "
        f"smaller batch_size, fewer members, or accumulate; --ignore-memory, or {IGNORE}=1, tries all the same."
    )


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that a device has left, within the limits of control groups; None if nobody says.

    Example:
        >>> free = free_memory(torch.device("cpu"))
        >>> free is None or free > 0
        True
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min((free for free in (_of_system(), _of_groups()) if free is not None), default=None)


def _of_system(path: Path = Path("/proc/meminfo")) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)


def _of_groups(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int | None:
    """Return the memory that this process's control groups (either version) leave; the file cache counts as free."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    found: list[int] = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers not in ("", "memory") and "memory" not in controllers.split(","):
            continue
        base = root / "memory" if controllers else root
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        # In a container the path may be the host's, and the group itself is the root.
        inner = base / group.lstrip("/")
        for folder in dict.fromkeys([inner, *inner.parents, base]):
            if folder == base or base in folder.parents:
                found += _left(folder, *names)
    return min(found, default=None)


def _left(folder: Path, limit: str, usage: str) -> Iterable[int]:
    try:
        most, used = (folder / limit).read_text().strip(), int((folder / usage).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return []
    if most == "max" or int(most) >= 2**60:
        return []
    return [max(0, int(most) - used + int(stat.get("inactive_file", stat.get("total_inactive_file", "0"))))]


def _size(count: int) -> str:
    if count < 2**20:
        return f"{count / 2**10:.0f} KiB"
    return f"{count / 2**20:.0f} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"
