"""The metrics that need all examples at once, as torchmetrics classes; they keep two numbers of each."""

from typing import Any

import torch
from torch import Tensor

from slimbayes._checks import check_count
from slimbayes.metrics import calibration_error, ood, ranking, selective
from slimbayes.metrics._inputs import as_double
from slimbayes.metrics._streams import Examples

__all__ = [
    "AdaptiveCalibrationError",
    "AucPr",
    "AucRoc",
    "Aurc",
    "OodScores",
    "RiskCoverageCurve",
]


class AdaptiveCalibrationError(Examples):
    """``adaptive_calibration_error`` of a stream: ``update(probs, targets)``; keeps two numbers of each example.

    Args:
        bins: Number of bins.
        options: Of ``torchmetrics.Metric``.
    """

    higher_is_better = False
    function = staticmethod(calibration_error.adaptive_calibration_error)
    columns = staticmethod(calibration_error.confidence_and_right)

    def __init__(self, bins: int = 15, **options: Any) -> None:
        check_count("bins", bins)
        super().__init__(label=str(bins), **options)
        self.bins = bins

    def score(self, first: Tensor, second: Tensor) -> Tensor:  # noqa: D102
        return calibration_error.adaptive_gap(first, second, self.bins)


class RiskCoverageCurve(Examples):
    """``risk_coverage_curve`` of a stream: ``update(probs, targets)``; keeps two numbers of each example."""

    function = staticmethod(selective.risk_coverage_curve)
    columns = staticmethod(calibration_error.confidence_and_right)

    def score(self, first: Tensor, second: Tensor) -> Any:  # noqa: D102
        return selective.curve(first, second)


class Aurc(Examples):
    """``aurc`` of a stream: ``update(probs, targets)``; keeps two numbers of each example."""

    higher_is_better = False
    function = staticmethod(selective.aurc)
    columns = staticmethod(calibration_error.confidence_and_right)

    def score(self, first: Tensor, second: Tensor) -> Tensor:  # noqa: D102
        return selective.curve(first, second).risk.mean()


class AucRoc(Examples):
    """``auc_roc`` of a stream: ``update(scores, targets)``; keeps two numbers of each example."""

    higher_is_better = True
    function = staticmethod(ranking.auc_roc)

    def columns(self, *arguments: Any) -> tuple[Tensor, ...]:  # noqa: D102
        ranking.cumulative_counts(*arguments)  # so that wrong ones are refused at once
        return arguments

    def score(self, first: Tensor, second: Tensor) -> Tensor:  # noqa: D102
        return ranking.auc_roc(first, second)


class AucPr(AucRoc):
    """``auc_pr`` of a stream: ``update(scores, targets)``; keeps two numbers of each example."""

    function = staticmethod(ranking.auc_pr)

    def score(self, first: Tensor, second: Tensor) -> Tensor:  # noqa: D102
        return ranking.auc_pr(first, second)


class OodScores(Examples):
    """``ood_scores`` of a stream: ``update(in_scores, out_scores)``, either of them empty if need be."""

    function = staticmethod(ood.ood_scores)

    def count(self, *arguments: Any) -> int:  # noqa: D102
        return sum(argument.numel() for argument in arguments)

    def columns(self, *arguments: Any) -> tuple[Tensor, ...]:  # noqa: D102
        inside, outside = (argument.flatten().double() for argument in arguments)
        scores = as_double("in_scores and out_scores", torch.cat([inside, outside]))
        return scores, torch.cat([torch.zeros_like(inside), torch.ones_like(outside)])

    def score(self, first: Tensor, second: Tensor) -> ood.Detection:  # noqa: D102
        return ood.ood_scores(first[second == 0], first[second == 1])
