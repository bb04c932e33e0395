"""The training loop against a bare one: what progress, metrics, checks and Accelerate cost."""

import tempfile
import weakref
from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any

import torch

from benchmarks.suites import LOOP_BATCH
from slimbayes._seeds import mix
from slimbayes.data.registry import load_data
from slimbayes.training.config import TrainConfig
from slimbayes.training.engine import accelerating
from slimbayes.training.models import build_model, build_objective
from slimbayes.training.networks import build_network
from slimbayes.training.parsing import parse_config
from slimbayes.training.rates import build_optimiser, build_schedule
from slimbayes.training.run import Run
from slimbayes.training.trainer import Trainer

__all__ = ["bare_epoch", "loop_epoch"]

Step = Callable[[], None]


def _config(net: dict[str, Any]) -> TrainConfig:
    # Of 1,000 digits an epoch takes eight steps.
    return parse_config(
        {"data": "digits", "net": net, "method": "rank1", "epochs": 1_000_000, "batch_size": LOOP_BATCH}
    )


def loop_epoch(net: dict[str, Any]) -> Step:
    """Return a function that trains an epoch as ``slimbayes train`` does, but for validation and checkpoint.

    Args:
        net: The section ``net`` of a configuration.
    """
    config, opened = _config(net), ExitStack()  # closed when the function goes
    folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
    accelerator = opened.enter_context(accelerating(config, folder))
    trainer = opened.enter_context(closing(Trainer(config, Run(folder), accelerator, quiet=True)))
    epochs = count()

    def epoch() -> None:
        trainer.epoch(next(epochs))

    weakref.finalize(epoch, opened.close)
    return epoch


def bare_epoch(net: dict[str, Any]) -> Step:
    """Return a function that trains an epoch of the same model in a plain torch loop."""
    config = _config(net)
    data = load_data("digits")
    (images,), labels = data.train.fetch(torch.arange(len(data.train)))
    model = build_model(config.method, lambda: build_network(config.net, data.task))
    convolutional = any(isinstance(part, torch.nn.Conv2d) for part in model.modules())
    if convolutional:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    elbo = build_objective(config, model, data.task, len(labels), 10**6)
    optimiser = build_optimiser(config.optimiser, model, len(labels))
    schedule = build_schedule(config.schedule, optimiser, 8, 10**6)
    epochs = count()

    def epoch() -> None:
        generator = torch.Generator().manual_seed(mix(0, next(epochs)))
        for rows in torch.randperm(len(labels), generator=generator).split(config.batch_size):
            (x,) = data.preparation(images[rows])
            x = x.to(memory_format=torch.channels_last) if convolutional else x
            optimiser.zero_grad()
            elbo(model(x), labels[rows]).backward()
            optimiser.step()
            schedule.step()
            elbo.step()

    return epoch
