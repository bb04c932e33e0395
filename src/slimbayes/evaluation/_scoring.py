"""Scores of one condition, of each member alone, and over all corruptions, from what was gathered of the examples."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from slimbayes import metrics
from slimbayes.data.dataset import DataSet
from slimbayes.evaluation._per_example_scores import Readings

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
        # As in metrics.normalised_disagreement, from what was kept of each example.
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


def each(readings: Readings) -> dict[str, list[float]]:
    """Return each example's NLL, and of classifiers whether it is right, its entropy and its mutual information."""
    found: dict[str, list[float]] = {"nll": [round(value, 4) for value in readings["nll"].tolist()]}
    if "log_probs" in readings:
        found["right"] = (readings["log_probs"].argmax(1) == readings["targets"]).int().tolist()
        for name in ("entropy", "mutual_information"):
            found[name] = [float(f"{value:.4g}") for value in readings[name].tolist()]
    return found


def tempered(readings: Readings, temperature: float) -> Readings:
    """Return what the class probabilities p say when they are as confident as under a temperature T.

    The probabilities are p^(1/T), normalised: of one network, its logits over T; of several, their mixture's. The most
    probable class is the same. They are read as those of one draw, so that there is no mutual information.
    """
    if "log_probs" not in readings or len(readings["nll"]) != len(readings["targets"]):
        raise ValueError("Expected argument `temperature` to be None but for one class an example. Leave it out.")
    log_probs, targets = (readings["log_probs"].double() / temperature).log_softmax(1), readings["targets"]
    found = Readings()
    entropy = -(log_probs.exp() * log_probs).nan_to_num().sum(1)
    nll = -log_probs.gather(1, targets.unsqueeze(1)).squeeze(1)
    block = {"nll": nll, "log_probs": log_probs, "targets": targets, "entropy": entropy}
    found.add({**block, "mutual_information": torch.zeros_like(entropy)})
    return found


def intervals(readings: Readings, resamples: int, seed: int) -> dict[str, list[float]]:
    """Return 95% bootstrap intervals over examples of the main scores.

    Chance gaps within bins push the ECE up, and resampling pushes it up once more, so that percentiles of resamples are
    too high. Its interval is therefore the basic one, which mirrors them, extended to the score itself if need be.
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


# ---------------------------------------------------------------------- members


def member_scores(readings: Readings) -> list[dict[str, float]]:
    """Return the NLL, accuracy and ECE of each member alone; none if there is one member."""
    if "member_nll" not in readings:
        return []
    columns = (readings[name].T for name in ("member_nll", "member_confidence", "member_right"))
    return [
        {
            "nll": nll.mean().item(),
            "accuracy": right.mean().item(),
            "ece": metrics.expected_calibration_error(*metrics.from_confidence(confidence, right)).item(),
        }
        for nll, confidence, right in zip(*columns, strict=True)
    ]


def diversity(readings: Readings, scores: dict[str, float | None]) -> dict[str, Any] | None:
    """Return how much the members differ (section 3.6); None if there is one member."""
    if "pairs" not in readings:
        return None
    kl = readings["pair_kl"].mean()
    return {
        "disagreement": scores["disagreement"],
        "normalised_disagreement": scores["normalised_disagreement"],
        "kl": kl.item() if kl.isfinite() else None,
        "cosine_similarity": readings["pair_cosine"].mean().item(),
        "pairs": (readings["pairs"].sum(0) / len(readings["pair_kl"])).tolist(),
    }


def pairs(readings: Readings) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return the scores of draws alone, of pairs of draws within members and between members, and of all draws mixed.

    Each has a value and its standard error over examples. ``nll_gain`` and ``accuracy_gain`` are what a mixture gains
    over its draws alone, on the same examples.
    """
    names = ("nll", "accuracy", "disagreement", "total_variation", "kl")
    kinds = {
        kind: {name: readings[f"{kind}_{name}"] for name in names if f"{kind}_{name}" in readings}
        for kind in ("alone", "within", "between")
    }
    if alone := kinds["alone"]:
        right = (readings["log_probs"].argmax(1) == readings["targets"]).double()
        kinds["all"] = {"nll": readings["nll"], "accuracy": right}
        for mixed in (kinds[kind] for kind in ("within", "between", "all") if kinds[kind]):
            mixed["nll_gain"] = alone["nll"] - mixed["nll"]
            mixed["accuracy_gain"] = mixed["accuracy"] - alone["accuracy"]
    return {
        kind: {name: _mean_and_error(values) for name, values in figures.items()}
        for kind, figures in kinds.items()
        if figures
    }


def _mean_and_error(values: torch.Tensor) -> dict[str, float | None]:
    error = values.std() / len(values) ** 0.5 if len(values) > 1 else torch.tensor(math.nan)
    both = {"value": values.mean().item(), "sem": error.item()}
    return {name: float(f"{number:.6g}") if math.isfinite(number) else None for name, number in both.items()}


# ---------------------------------------------------------------------- all corruptions


def summarise(corrupted: dict[str, dict[str, Any]], data: DataSet) -> dict[str, Any] | None:
    """Return the summary of a result; None without corruptions.

    Args:
        corrupted: By type and severity, ``{"scores": {...}}``.
        data: The data set; AlexNet's errors are known for ImageNet only.
    """
    if not corrupted:
        return None
    first = next(iter(next(iter(corrupted.values())).values()))["scores"]
    tables = {name: _table(corrupted, name) for name in first}
    whole = {name: table for name, table in tables.items() if table is not None}
    spread: dict[str, dict[str, Any]] = {}
    for name, table in whole.items():
        for severity, one in metrics.by_severity(table).items():
            spread.setdefault(str(severity), {})[name] = one._asdict()
    return {
        "mean": {name: metrics.corruption_mean(table) for name, table in whole.items()},
        "median": {name: metrics.corruption_median(table) for name, table in whole.items()},
        "mce": _mce(whole.get("accuracy"), data),
        "by_severity": spread,
    }


def _table(corrupted: dict[str, dict[str, Any]], name: str) -> dict[str, dict[str, float]] | None:
    """Return one score by type and severity; None if some condition lacks it."""
    table = {
        kind: {severity: one["scores"].get(name) for severity, one in severities.items()}
        for kind, severities in corrupted.items()
    }
    values = [value for severities in table.values() for value in severities.values()]
    return None if any(value is None or not math.isfinite(value) for value in values) else table


def _mce(accuracy: dict[str, dict[str, float]] | None, data: DataSet) -> float | None:
    if accuracy is None or data.name != "imagenet":
        return None
    errors = {
        kind: {int(severity): 1 - value for severity, value in severities.items()}
        for kind, severities in accuracy.items()
        if kind in metrics.ALEXNET_ERRORS
    }
    try:
        return metrics.mean_corruption_error(errors)
    except ValueError:  # some of the 15 types or 5 severities were not asked for
        return None
