"""From a configuration to a trained model in a folder."""

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import GradientAccumulationPlugin

from slimbayes.training.config import TrainConfig
from slimbayes.training.lock import alone_in
from slimbayes.training.models import check_method
from slimbayes.training.networks import check_network
from slimbayes.training.parsing import as_config
from slimbayes.training.run import Run
from slimbayes.training.trainer import AfterEpoch, Trainer

__all__ = ["accelerating", "continue_run", "default_folder", "fit"]

PRECISIONS = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}


def fit(
    config: TrainConfig | Mapping[str, Any] | str | os.PathLike[str],
    folder: str | os.PathLike[str] | None = None,
    *,
    resume: bool = False,
    quiet: bool = False,
    after_epoch: AfterEpoch | None = None,
) -> Run:
    """Train a model as a configuration says, and write everything to a folder.

    Under ``torchrun`` or ``accelerate launch`` the processes share each step's examples. Every process draws its own
    noise, gradients are averaged, and the KL counts once. Only the first one writes; all must see the folder.

    Args:
        config: A ``TrainConfig``, its keys and values, or a YAML file.
        folder: Where to write; ``runs/DATA-NET-METHOD-seedSEED`` by default.
        resume: Continue what the folder holds, from its last complete epoch. On the same hardware the weights end up
            as if the run had not been interrupted, bit by bit.
        quiet: Show no progress.
        after_epoch: Called after each epoch that is trained, once it is stored, with its number and its validation
            scores, None if it was not validated. What it raises ends training; the run can be continued.

    Raises:
        FolderInUse: Another process trains in the folder.

    Returns:
        The run: ``run.model()``, ``run.result``, ``run.metrics``.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = fit({"data": "digits", "net": {"name": "mlp", "hidden": [32]}, "epochs": 2}, folder, quiet=True)
        ...     run.result["epochs"], sorted(run.result["test"])
        (2, ['accuracy', 'disagreement', 'ece', 'member_accuracy', 'nll'])
    """
    config = as_config(config)
    check_network(config.net)  # before data are loaded, which may take minutes
    check_method(config.method)
    # The configuration names the network, and so does whoever gives it.
    run = Run(default_folder(config) if folder is None else folder, trust=config.net.name)
    if _is_finished(run, config, resume):
        run.check_data_if_there(config)
    else:
        with _alone_in(run.folder):
            _train(run, config, resume, quiet, after_epoch)
    return run


def continue_run(run: Run, task: str | None = None) -> None:
    """Train what a folder's configuration says, from its last checkpoint on; wait for others of this machine.

    Args:
        run: Its configuration is trusted: it must have been written by the call that this one belongs to.
        task: See ``alone_in``.
    """
    config = run.config
    with alone_in(run.folder, wait=True, task=task):
        _train(Run(run.folder, trust=config.net.name), config, resume=True, quiet=False)


def _alone_in(folder: Path) -> AbstractContextManager[None]:
    """Of processes that train together, the first one holds the lock."""
    return alone_in(folder) if os.environ.get("RANK", "0") == "0" else nullcontext()


def _is_finished(run: Run, config: TrainConfig, resume: bool) -> bool:
    if run.exists() and not resume:
        raise FileExistsError(f"{run.folder} holds a run already. Continue it with resume (--resume), or give another.")
    run.check_free()
    if run.checkpoints.index() is None:  # a run that failed before it had one may be put right
        return False
    run.check_same(config)
    return run.result is not None and run.result.get("length") == config.length


def _train(run: Run, config: TrainConfig, resume: bool, quiet: bool, after_epoch: AfterEpoch | None = None) -> None:
    if _is_finished(run, config, resume):  # another process may have trained it until now
        return
    with (
        accelerating(config, run.folder) as accelerator,
        closing(Trainer(config, run, accelerator, quiet, after_epoch)) as trainer,
    ):
        trainer.train()


def default_folder(config: TrainConfig) -> Path:
    """Return where a run goes if nobody says where."""
    net = config.net.name.rpartition(":")[2]
    path = config.data.options.get("path")  # of one's own file, whose name says more than `table`
    data = Path(path).name.partition(".")[0] if isinstance(path, str) else config.data.name
    return Path("runs") / f"{data or config.data.name}-{net}-{config.method.name}-seed{config.seed}"


@contextmanager
def accelerating(config: TrainConfig, folder: Path) -> Iterator[Accelerator]:
    """Yield an accelerator of this run's precision, whatever others in this process have, and give them theirs back."""
    for tracker in config.trackers:
        if find_spec(tracker) is None:
            raise ImportError(f"trackers: {tracker} is not installed. Run: pip install {tracker}")
    accelerator = None
    others = dict(AcceleratorState._shared_state), dict(GradientState._shared_state)  # such as Hugging Face's Trainer
    AcceleratorState._reset_state()
    GradientState._reset_state()
    try:
        accelerator = Accelerator(
            mixed_precision=PRECISIONS[config.precision],
            # A plugin, because a launcher's environment would override a plain number.
            gradient_accumulation_plugin=GradientAccumulationPlugin(config.accumulate, sync_with_dataloader=False),
            cpu=config.device == "cpu" or not torch.cuda.is_available(),
            log_with=config.trackers or None,
            project_dir=str(folder) if config.trackers else None,
        )
        if config.precision == "fp16" and not accelerator.native_amp:  # Accelerate would go on with fp32
            raise ValueError("Expected `precision` to be bf16 or fp32 on a CPU, but got 'fp16', which needs a GPU.")
        yield accelerator
    finally:
        if accelerator is not None:
            for tracker in accelerator.trackers:  # end_training would also end the group of processes
                tracker.finish()
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        AcceleratorState._reset_state(reset_partial_state=not distributed and not others[0])
        GradientState._reset_state()
        AcceleratorState._shared_state.update(others[0])
        GradientState._shared_state.update(others[1])
