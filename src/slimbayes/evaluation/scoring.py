"""Scores of one condition from what was read of its examples."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from slimbayes import metrics
from slimbayes.evaluation.readings import Readings

__all__ = ["intervals", "scores"]

Scores = dict[str, float | None]


def scores(readings: Readings) -> Scores:
    """Return all scores; None for what these examples do not determine.

    Args:
        readings: Of all examples of a condition.
    """
    found = _regression(readings) if "target" in readings else _classification(readings)
    return {name: number if math.isfinite(number) else None for name, number in found.items()}


def _classification(readings: Readings) -> dict[str, float]:
    log_probs, targets = readings["log_probs"], readings["targets"]
    probs, classes = log_probs.exp(), log_probs.shape[1]
    found: dict[str, Tensor] = {
        "nll": readings["nll"].mean(),
        "accuracy": metrics.accuracy(probs, targets),
        "ece": metrics.expected_calibration_error(probs, targets),
        "adaptive_ece": metrics.adaptive_calibration_error(probs, targets),
        "classwise_ece": metrics.classwise_calibration_error(probs, targets),
        "signed_ece": metrics.signed_calibration_error(probs, targets),
        "brier": metrics.brier_score(probs, targets),
        "aurc": metrics.aurc(probs, targets),
        "entropy": readings["entropy"].mean(),
        "mutual_information": readings["mutual_information"].mean(),
    }
    if classes > 5:
        found["top_5"] = metrics.top_k_accuracy(probs, targets, 5)
    if classes == 2 and 0 < targets.sum() < len(targets):
        found["auc_roc"] = metrics.auc_roc(probs[:, 1], targets)
        found["auc_pr"] = metrics.auc_pr(probs[:, 1], targets)
    if "disagreement" in readings:
        found["disagreement"] = readings["disagreement"].mean()
        # As metrics.normalised_disagreement has it, from what was kept of each example.
        found["normalised_disagreement"] = found["disagreement"] / (1 - readings["voters_right"].mean())
    return {name: float(value) for name, value in found.items()}


def _regression(readings: Readings) -> dict[str, float]:
    target, low, high = readings["target"], readings["low"], readings["high"]
    found = {
        "nll": readings["nll"].mean(),
        "rmse": metrics.root_mean_squared_error(readings["mean"], target),
        "crps": readings["crps"].mean(),
        "coverage": metrics.interval_coverage(low, high, target),
        "width": metrics.interval_width(low, high),
        "aleatoric_std": readings["aleatoric_std"].square().mean().sqrt(),
        "epistemic_std": readings["epistemic_std"].square().mean().sqrt(),
    }
    return {name: float(value) for name, value in found.items()}


def intervals(readings: Readings, resamples: int, seed: int) -> dict[str, list[float]]:
    """Return 95% bootstrap intervals over examples of the main scores.

    Chance gaps within bins push the ECE up, of a resample once more than of the examples, so that its percentiles lie
    too high; its interval is the basic one, which turns that around, and reaches as far as the score itself.
    """

    def interval(metric: Callable[..., Tensor] | None, *arrays: Tensor, method: str = "percentile") -> list[float]:
        return list(metrics.bootstrap_interval(metric, *arrays, resamples=resamples, seed=seed, method=method))

    def rmse(squares: Tensor) -> Tensor:
        return squares.mean().sqrt()

    found = {"nll": interval(None, readings["nll"])}
    if "target" in readings:
        target, low, high = readings["target"], readings["low"], readings["high"]
        inside = ((low <= target) & (target <= high)).double()
        found["rmse"] = interval(rmse, (readings["mean"] - target).square())
        found["crps"] = interval(None, readings["crps"])
        found["coverage"] = interval(None, inside)
        return found
    probs, targets = readings["log_probs"].exp(), readings["targets"]
    confidence, label = probs.max(1)
    right = (label == targets).double()
    truth = torch.nn.functional.one_hot(targets, probs.shape[1])
    found["accuracy"] = interval(None, right)
    found["brier"] = interval(None, (probs - truth).square().sum(1))
    answers = metrics.from_confidence(confidence, right)
    ece = metrics.expected_calibration_error(*answers).item()
    low_end, high_end = interval(metrics.expected_calibration_error, *answers, method="basic")
    found["ece"] = [max(low_end, 0.0), max(high_end, ece)]
    return found
