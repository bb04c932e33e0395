"""Curves and histograms of the clean examples, small enough for a JSON file."""

from typing import Any

import torch
from torch import Tensor

from slimbayes import metrics
from slimbayes.evaluation.readings import Readings

__all__ = ["details", "histograms"]

BINS = 30
POINTS = 101
SCATTER = 400
LEVELS = torch.arange(0.05, 0.96, 0.05, dtype=torch.float64)


def details(readings: Readings) -> dict[str, Any]:
    """Return the curves of the clean examples: of classes, or of a regression."""
    return _regression(readings) if "target" in readings else _classification(readings)


def _classification(readings: Readings) -> dict[str, Any]:
    probs, targets = readings["log_probs"].exp(), readings["targets"]
    curve = metrics.reliability_curve(probs, targets)
    risk = metrics.risk_coverage_curve(probs, targets)
    some = torch.linspace(0, len(risk.coverage) - 1, min(POINTS, len(risk.coverage))).round().long().unique()
    right = probs.argmax(1).eq(targets).reshape(len(readings["entropy"]), -1).all(1)
    return {
        "reliability": {name: _numbers(values) for name, values in curve._asdict().items()},
        "risk_coverage": {"coverage": _numbers(risk.coverage[some]), "risk": _numbers(risk.risk[some])},
        "uncertainty": {
            name: histograms(right=readings[name][right], wrong=readings[name][~right])
            for name in ("entropy", "mutual_information")
        },
    }


def _regression(readings: Readings) -> dict[str, Any]:
    # A central interval holds the target if its place in the mixture is no farther from the middle than half the level.
    distance = 2 * (readings["rank"] - 0.5).abs()
    covered = (distance.unsqueeze(1) <= LEVELS).double().mean(0)
    some = torch.linspace(0, len(distance) - 1, min(SCATTER, len(distance))).round().long().unique()
    return {
        "calibration": {"level": _numbers(LEVELS), "coverage": _numbers(covered)},
        "scatter": {name: _numbers(readings[name][some]) for name in ("target", "mean", "std")},
    }


def histograms(**groups: Tensor) -> dict[str, list[Any]]:
    """Return counts of each group in common bins of equal width.

    Example:
        >>> found = histograms(right=torch.tensor([0.0, 1.0]), wrong=torch.tensor([1.0]))
        >>> found["right"][0], found["right"][-1], found["wrong"][-1]
        (1, 1, 1)
    """
    everything = torch.cat(list(groups.values())).double()
    low, high = everything.min(), everything.max()
    high = torch.where(high > low, high, low + 1)
    counted = {
        name: torch.histc(values.double(), BINS, low.item(), high.item()).long().tolist()
        for name, values in groups.items()
    }
    return {"edges": _numbers(torch.linspace(low.item(), high.item(), BINS + 1)), **counted}


def _numbers(values: Tensor) -> list[Any]:
    """Return JSON numbers with the digits that a figure needs; None for NaN."""
    if not values.is_floating_point():
        return values.tolist()
    return [None if value != value else float(f"{value:.6g}") for value in values.double().tolist()]
