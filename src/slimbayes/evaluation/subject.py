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
        config: The run's configuration, without its seed and what changes no result.
        training: Means and validation scores of each epoch.
        digest: Of the weights; a stored evaluation of other weights is not continued.
        data_folder: Where its data sets are, or None.
        fingerprint: Of its data; a stored evaluation on other data is not continued.
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
    fingerprint: dict[str, Any] | None = None

    @cached_property  # needed for every block, and some posteriors are large
    def is_point(self) -> bool:
        """Whether all draws of a member are the same."""
        return self.model.is_point

    @property
    def stored_numbers(self) -> int:
        """How many numbers a saved model has: parameters, and what a posterior has collected."""
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
