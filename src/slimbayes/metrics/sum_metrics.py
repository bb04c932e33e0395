"""The metrics that follow from other sums over examples than their mean, as torchmetrics classes."""

from typing import Any

import torch
from torch import Tensor

from slimbayes._checks import check_count
from slimbayes.metrics import calibration_error, diversity
from slimbayes.metrics._streams import Sums

__all__ = [
    "ClasswiseCalibrationError",
    "ExpectedCalibrationError",
    "NormalisedDisagreement",
    "PairwiseDisagreement",
    "ReliabilityCurve",
]


class NormalisedDisagreement(Sums):
    """``normalised_disagreement`` of a stream: ``update(member_probs, targets)``."""

    function = staticmethod(diversity.normalised_disagreement)

    def __init__(self, **options: Any) -> None:
        super().__init__(2, **options)

    def sums_of(self, member_probs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        pairs = diversity.disagreement(member_probs, reduction="none")
        return torch.stack([pairs, diversity.member_errors(member_probs, targets)]).sum(1)

    def result(self) -> Tensor:  # noqa: D102
        return self.sums[0] / self.sums[1]


class PairwiseDisagreement(Sums):
    """``pairwise_disagreement`` of a stream: ``update(member_probs)``.

    Args:
        members: How many.
        options: Of ``torchmetrics.Metric``.
    """

    batch_dim = 1
    function = staticmethod(diversity.pairwise_disagreement)

    def __init__(self, members: int, **options: Any) -> None:
        check_count("members", members, 2)
        super().__init__(members, members, **options)
        self.members = members

    def sums_of(self, member_probs: Tensor) -> Tensor:  # noqa: D102
        if len(member_probs) != self.members:
            raise ValueError(
                f"Expected argument `member_probs` of {self.members} members, but got {len(member_probs)}."
            )
        return diversity.differing(member_probs)

    def result(self) -> Tensor:  # noqa: D102
        return self.sums / self.examples


class TopLabelBins(Sums):
    """Sums over the bins of the ECE.

    Args:
        bins: Number of bins.
        options: Of ``torchmetrics.Metric``.
    """

    def __init__(self, bins: int = 15, **options: Any) -> None:
        check_count("bins", bins)
        super().__init__(3, bins, **options)
        self.bins = bins

    def sums_of(self, probs: Tensor, targets: Tensor) -> Tensor:
        return calibration_error.top_label_sums(probs, targets, self.bins)


class ExpectedCalibrationError(TopLabelBins):
    """``expected_calibration_error`` of a stream: ``update(probs, targets)``.

    Args:
        bins: Number of bins.
        options: Of ``torchmetrics.Metric``.
    """

    higher_is_better = False
    function = staticmethod(calibration_error.expected_calibration_error)

    def result(self) -> Tensor:  # noqa: D102
        return calibration_error.gap(self.sums)


class ReliabilityCurve(TopLabelBins):
    """``reliability_curve`` of a stream: ``update(probs, targets)``.

    Args:
        bins: Number of bins.
        options: Of ``torchmetrics.Metric``.
    """

    function = staticmethod(calibration_error.reliability_curve)

    def result(self) -> calibration_error.Reliability:  # noqa: D102
        return calibration_error.curve(self.sums)


class ClasswiseCalibrationError(Sums):
    """``classwise_calibration_error`` of a stream: ``update(probs, targets)``.

    Args:
        classes: How many.
        bins: Number of bins.
        options: Of ``torchmetrics.Metric``.
    """

    higher_is_better = False
    function = staticmethod(calibration_error.classwise_calibration_error)

    def __init__(self, classes: int, bins: int = 15, **options: Any) -> None:
        check_count("classes", classes)
        check_count("bins", bins)
        super().__init__(3, classes * bins, **options)
        self.classes = classes
        self.bins = bins

    def sums_of(self, probs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        if probs.shape[-1] != self.classes:
            raise ValueError(f"Expected argument `probs` of {self.classes} classes, but got {probs.shape[-1]}.")
        return calibration_error.class_sums(probs, targets, self.bins)

    def result(self) -> Tensor:  # noqa: D102
        return calibration_error.gap(self.sums)
