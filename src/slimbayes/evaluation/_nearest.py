r"""Which training examples and classes are nearest to an input, in the space of the network's features.

With features :math:`f(x) \in R^D`, class means :math:`\mu_c` and the variances within classes

.. math:: s_j^2 = \frac{1}{N - C} \sum_c \sum_{i \in c} (f_j(x_i) - \mu_{cj})^2,

the distance of two points is :math:`d(a, b)^2 = \frac1D \sum_j (a_j - b_j)^2 / s_j^2`: that of Mahalanobis with the
diagonal covariance that all classes share (Lee et al. 2018, Eq. 1 and 2, whose covariance is full), divided by
:math:`\sqrt D` so that about 1 is usual. Variances below a hundredth of their mean are raised to it;
otherwise a unit that is nearly always off would decide alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from slimbayes._checks import check_count
from slimbayes.data.dataset import DataSet
from slimbayes.evaluation._features import features_of
from slimbayes.model import BayesianModel

#: Numbers of prepared inputs that go through the network at once, times members; and of features that are kept.
NUMBERS, KEPT = 2**21, 2**25
#: Least variance of a feature, as a share of the features' mean variance.
FLOOR = 0.01


class NearClass(NamedTuple):
    """A class and how far an input is from its mean.

    Attributes:
        number: Of the class.
        distance: As the module describes.
        farther_than: Share of the class's training examples that are nearer to the mean of the others of their
            class; None with fewer than two.
        examples: How many there were.
    """

    number: int
    distance: float
    farther_than: float | None
    examples: int


class NearExample(NamedTuple):
    """A training example and its distance.

    Attributes:
        row: Of the training data.
        distance: As the module describes.
    """

    row: int
    distance: float


@dataclass(frozen=True)
class Neighbourhood:
    """Features of training examples.

    Args:
        features: ``(examples, D)``.
        rows: ``(examples,)``: where they are in the training data.
        labels: ``(examples,)``: class numbers from 0; None if there are no classes, and all count as one.

    Example:
        >>> features, labels = torch.tensor([[0.0], [2.0], [10.0], [12.0]]), torch.tensor([0, 0, 1, 1])
        >>> near = Neighbourhood(features, torch.arange(4), labels)
        >>> [(one.number, round(one.distance, 4)) for one in near.classes(torch.tensor([8.0]))]
        [(1, 2.1213), (0, 4.9497)]
        >>> near.examples(torch.tensor([9.0]), count=1)
        [NearExample(row=2, distance=0.7071...)]
    """

    features: Tensor
    rows: Tensor
    labels: Tensor | None = None

    @cached_property
    def _numbers(self) -> Tensor:
        """Class of each example."""
        return torch.zeros(len(self.features), dtype=torch.int64) if self.labels is None else self.labels

    @cached_property
    def _counts(self) -> Tensor:
        return torch.bincount(self._numbers)

    @cached_property
    def _means(self) -> Tensor:
        """Of each class, ``(classes, D)``; 0 for one without examples."""
        sums = self.features.new_zeros(len(self._counts), self.features.shape[1], dtype=torch.float64)
        sums.index_add_(0, self._numbers, self.features.double())
        return sums / self._counts.clamp_min(1).unsqueeze(1)

    @cached_property
    def _deviations(self) -> Tensor:
        """Of the examples from the means of their classes, ``(examples, D)``."""
        return self.features - self._means[self._numbers]

    @cached_property
    def _scale(self) -> Tensor:
        """Standard deviations within classes, times the root of D: what differences are divided by."""
        present = int((self._counts > 0).sum())
        variance = self._deviations.square().sum(0) / max(1, len(self.features) - present)
        floor = FLOOR * variance.mean()
        return (variance.clamp_min(floor if floor > 0 else 1.0) * self.features.shape[1]).sqrt()

    @cached_property
    def _own_distances(self) -> Tensor:
        """Of each example from the mean of the others of its class: n / (n - 1) times that from the mean of all."""
        counts = self._counts[self._numbers].double()
        return (self._deviations / self._scale).norm(dim=1) * counts / (counts - 1).clamp_min(1)

    def classes(self, features: Tensor) -> list[NearClass]:
        """Return all classes that have examples, the nearest first; of an input's features, ``(D,)``."""
        distances = ((features.double() - self._means) / self._scale).norm(dim=1)
        found = []
        for number in (self._counts > 0).nonzero().flatten().tolist():
            own = self._own_distances[self._numbers == number]
            nearer = None if len(own) < 2 else (own < distances[number]).double().mean().item()
            found.append(NearClass(number, distances[number].item(), nearer, len(own)))
        return sorted(found, key=lambda one: one.distance)

    def examples(self, features: Tensor, count: int = 6) -> list[NearExample]:
        """Return the nearest examples, the very nearest first."""
        check_count("count", count)
        distances = ((features.double() - self.features) / self._scale).norm(dim=1)
        nearest = distances.topk(min(count, len(distances)), largest=False, sorted=True)
        rows = self.rows[nearest.indices].tolist()
        return [NearExample(*one) for one in zip(rows, nearest.values.tolist(), strict=True)]

    def lonelier_than(self, features: Tensor) -> float | None:
        """Return the share of training examples that have a nearer neighbour than this input has."""
        if len(self.features) < 2:
            return None
        scaled = self._deviations / self._scale  # around 0 and in double precision, so that little is rounded away
        apart = torch.cdist(scaled, scaled).fill_diagonal_(torch.inf)
        own = self.examples(features, 1)[0].distance
        return (apart.amin(1) < own).double().mean().item()


def neighbourhood(
    model: BayesianModel,
    data: DataSet,
    *,
    limit: int = 2000,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Neighbourhood:
    """Return the features of training examples, on the CPU.

    Args:
        model: The model.
        data: Whose ``train`` it learnt from.
        limit: The most examples to look at, chosen at random; fewer if their features would take more than 128 MiB.
        seed: Of choosing them.
        progress: Called with the examples done and the number of them.
    """
    check_count("limit", limit)
    rows = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))[:limit]
    parts, targets, start, block = [], [], 0, 1  # one example tells how much memory the others take
    while start < len(rows):
        raw, own = data.train.fetch(rows[start : start + block])
        inputs = tuple(x.to(model.device) for x in data.preparation(*raw))
        parts.append(features_of(model, *inputs).cpu())
        targets.append(own)
        start += len(own)
        rows = rows[: max(1, KEPT // parts[0].shape[1])]
        block = max(1, min(256, NUMBERS // (model.members * sum(x[:1].numel() for x in inputs))))
        if progress is not None:
            progress(start, len(rows))
    return Neighbourhood(torch.cat(parts), rows[:start], _labels(torch.cat(targets), data))


def _labels(targets: Tensor, data: DataSet) -> Tensor | None:
    return None if data.task.likelihood == "gaussian" or targets.dim() > 1 else targets.long()
