"""The metrics that are means over examples, as torchmetrics classes; see also the other two files of classes.

Each streams to the value of the function of the same name.

>>> import torch, slimbayes as sb
>>> metric = sb.metrics.Accuracy()
>>> metric.update(torch.tensor([[0.9, 0.1]]), torch.tensor([0]))
>>> metric.update(torch.tensor([[0.6, 0.4]]), torch.tensor([1]))
>>> metric.compute().item()
0.5
"""

from typing import Any

from torch import Tensor

from slimbayes._checks import check_count
from slimbayes.metrics import calibration_error, classification, diversity, regression
from slimbayes.metrics._streams import Mean
from slimbayes.metrics.ranked_probability import crps

__all__ = [
    "Accuracy",
    "BrierScore",
    "CosineSimilarity",
    "Crps",
    "Disagreement",
    "GaussianNegativeLogLikelihood",
    "IntervalCoverage",
    "IntervalWidth",
    "NegativeLogLikelihood",
    "PairwiseKl",
    "RootMeanSquaredError",
    "SignedCalibrationError",
    "TopKAccuracy",
]


class Accuracy(Mean):
    """``accuracy`` of a stream: ``update(probs, targets)``."""

    higher_is_better = True
    function = staticmethod(classification.accuracy)


class TopKAccuracy(Mean):
    """``top_k_accuracy`` of a stream: ``update(probs, targets)``.

    Args:
        k: How many classes count.
        options: Of ``torchmetrics.Metric``.
    """

    higher_is_better = True
    function = staticmethod(classification.top_k_accuracy)

    def __init__(self, k: int = 5, **options: Any) -> None:
        check_count("k", k)
        super().__init__(label=str(k), **options)
        self.k = k

    def sums_of(self, probs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        return classification.top_k_accuracy(probs, targets, self.k, reduction="none").sum()


class NegativeLogLikelihood(Mean):
    """``negative_log_likelihood`` of a stream: ``update(log_probs, targets)``."""

    higher_is_better = False
    function = staticmethod(classification.negative_log_likelihood)


class BrierScore(Mean):
    """``brier_score`` of a stream: ``update(probs, targets)``."""

    higher_is_better = False
    function = staticmethod(classification.brier_score)


class SignedCalibrationError(Mean):
    """``signed_calibration_error`` of a stream: ``update(probs, targets)``."""

    function = staticmethod(calibration_error.signed_calibration_error)


class GaussianNegativeLogLikelihood(Mean):
    """``gaussian_negative_log_likelihood`` of a stream: ``update(mean, std, targets)``."""

    higher_is_better = False
    function = staticmethod(regression.gaussian_negative_log_likelihood)


class Crps(Mean):
    """``crps`` of a stream: ``update(mean, std, targets)``."""

    higher_is_better = False
    function = staticmethod(crps)


class IntervalCoverage(Mean):
    """``interval_coverage`` of a stream: ``update(low, high, targets)``."""

    function = staticmethod(regression.interval_coverage)


class IntervalWidth(Mean):
    """``interval_width`` of a stream: ``update(low, high)``."""

    function = staticmethod(regression.interval_width)


class RootMeanSquaredError(Mean):
    """``root_mean_squared_error`` of a stream: ``update(predictions, targets)``."""

    higher_is_better = False
    function = staticmethod(regression.squared_error)

    def result(self) -> Tensor:  # noqa: D102
        return super().result().sqrt()


class Disagreement(Mean):
    """``disagreement`` of a stream: ``update(member_probs)``."""

    batch_dim = 1
    function = staticmethod(diversity.disagreement)


class PairwiseKl(Mean):
    """``pairwise_kl`` of a stream: ``update(member_log_probs)``."""

    batch_dim = 1
    function = staticmethod(diversity.pairwise_kl)


class CosineSimilarity(Mean):
    """``cosine_similarity`` of a stream: ``update(member_probs)``."""

    batch_dim = 1
    function = staticmethod(diversity.cosine_similarity)
