"""What is gained by refusing the least confident predictions."""

from typing import NamedTuple

import torch
from torch import Tensor

from slimbayes.metrics._ties import tie_means
from slimbayes.metrics.calibration_error import confidence_and_right

__all__ = ["RiskCoverage", "aurc", "risk_coverage_curve"]


class RiskCoverage(NamedTuple):
    """The risk of answering only the most confident examples.

    Attributes:
        coverage: Share of examples answered, :math:`1/n, 2/n, ..., 1`.
        risk: Share of wrong ones among them.
    """

    coverage: Tensor
    risk: Tensor


def risk_coverage_curve(probs: Tensor, targets: Tensor) -> RiskCoverage:
    r"""Return the error rate of the :math:`k` most confident examples for each :math:`k` (El-Yaniv & Wiener 2010).

    Examples of equal confidence each count with their mean error, the expectation over a random order of them, so
    that the order in which they come does not matter.

    Args:
        probs: ``(batch, classes)``.
        targets: ``(batch,)`` of class numbers.

    Example:
        >>> probs = torch.tensor([[0.9, 0.1], [0.6, 0.4]])
        >>> risk_coverage_curve(probs, torch.tensor([0, 1])).risk.tolist()
        [0.0, 0.5]
    """
    return curve(*confidence_and_right(probs, targets))


def aurc(probs: Tensor, targets: Tensor) -> Tensor:
    r"""Return the area under the risk-coverage curve, :math:`\frac1n \sum_k risk_k` (Geifman et al. 2019).

    Args:
        probs: ``(batch, classes)``.
        targets: ``(batch,)`` of class numbers.

    Example:
        >>> aurc(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1])).item()
        0.25
    """
    return risk_coverage_curve(probs, targets).risk.mean()


def curve(confidence: Tensor, right: Tensor) -> RiskCoverage:
    """Return the curve from each example's confidence and whether it is right, as 0 or 1."""
    errors = tie_means(confidence, 1 - right)[confidence.argsort(descending=True)]
    number = torch.arange(1, len(errors) + 1, dtype=torch.float64, device=errors.device)
    return RiskCoverage(number / len(errors), errors.cumsum(0) / number)
