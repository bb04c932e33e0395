"""What is evaluated: a model with the data set that it belongs to."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from slimbayes.data.dataset import DataSet
from slimbayes.methods.registry import method_of
from slimbayes.model import BayesianModel

__all__ = ["Subject", "title_of"]


@dataclass(frozen=True)
class Subject:
    """A model to evaluate.

    Attributes:
        model: In evaluation mode.
        data: Its data set, with the preparation that it was trained with.
        name: Of the run.
        title: What tables call it; runs of one title and configuration are the seeds of one method.
        seed: Of the run.
        folder: Where ``evaluation.json`` goes.
        config: What the run was asked for, but for its seed and the like.
        training: Means and validation scores of each epoch.
        digest: Of the weights; an evaluation of other weights is not gone on with.
        data_folder: Where its data sets are, if that was said.
    """

    model: BayesianModel
    data: DataSet
    name: str
    title: str
    seed: int = 0
    folder: Path | None = None
    config: dict[str, Any] = field(default_factory=dict)
    training: list[dict[str, Any]] = field(default_factory=list)
    digest: str = ""
    data_folder: Path | None = None

    @cached_property  # asked for with every block, and some laws are large
    def is_point(self) -> bool:
        """Whether all draws of a member are alike."""
        return not any(part.scale.any() for part in self.model.stochastic())

    @property
    def stored_numbers(self) -> int:
        """How many numbers a saved model has: parameters, and what a law has collected."""
        return sum(value.numel() for value in self.model.state_dict().values() if value.is_floating_point())


def title_of(model: BayesianModel) -> str:
    """Return what tables call a model.

    Example:
        >>> import slimbayes as sb
        >>> import torch
        >>> title_of(sb.rank1(torch.nn.Linear(2, 2), family="cauchy"))
        'rank-1 cauchy'
    """
    method = method_of(model)
    return model.method if method is None else method.title.format(**model.options)
