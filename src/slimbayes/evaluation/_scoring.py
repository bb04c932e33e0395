"""Scores of one condition, of each member alone, and over all corruptions, from what was gathered of the examples."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from slimbayes import metrics
from slimbayes.data.dataset import DataSet
from slimbayes.evaluation._per_example_scores import PerExample

Scores = dict[str, float | None]


def scores(per_example: PerExample) -> Scores:
    """Return all scores; None for what these examples do not determine.

    Args:
        per_example: Of all examples of a condition.
    """
    found = _regression(per_example) if "target" in per_example else _classification(per_example)
    return {name: number if math.isfinite(number) else None for name, number in found.items()}


def _classification(per_example: PerExample) -> dict[str, float]:
    log_probs, targets = per_example["log_probs"], per_example["targets"]
    probs, classes = log_probs.exp(), log_probs.shape[1]
    found: dict[str, Tensor] = {
        "nll": per_example["nll"].mean(),
        "accuracy": metrics.accuracy(probs, targets),
        "ece": metrics.expected_calibration_error(probs, targets),
        "adaptive_ece": metrics.adaptive_calibration_error(probs, targets),
        "classwise_ece": metrics.classwise_calibration_error(probs, targets),
        "signed_ece": metrics.signed_calibration_error(probs, targets),
        "brier": metrics.brier_score(probs, targets),
        "aurc": metrics.aurc(probs, targets),
        "entropy": per_example["entropy"].mean(),
        "mutual_information": per_example["mutual_information"].mean(),
    }
    if classes > 5:
        found["top_5"] = metrics.top_k_accuracy(probs, targets, 5)
    if classes == 2 and 0 < targets.sum() < len(targets):
        found["auc_roc"] = metrics.auc_roc(probs[:, 1], targets)
        found["auc_pr"] = metrics.auc_pr(probs[:, 1], targets)
    if "disagreement" in per_example:
        found["disagreement"] = per_example["disagreement"].mean()
        # As in metrics.normalised_disagreement, from what was kept of each example.
        found["normalised_disagreement"] = found["disagreement"] / (1 - per_example["voters_right"].mean())
    return {name: float(value) for name, value in found.items()}


def _regression(per_example: PerExample) -> dict[str, float]:
    target, low, high = per_example["target"], per_example["low"], per_example["high"]
    found = {
        "nll": per_example["nll"].mean(),
        "rmse": metrics.root_mean_squared_error(per_example["mean"], target),
        "crps": per_example["crps"].mean(),
        "coverage": metrics.interval_coverage(low, high, target),
        "width": metrics.interval_width(low, high),
        "aleatoric_std": per_example["aleatoric_std"].square().mean().sqrt(),
        "epistemic_std": per_example["epistemic_std"].square().mean().sqrt(),
    }
    return {name: float(value) for name, value in found.items()}


def each(per_example: PerExample) -> dict[str, list[float]]:
    """Return each example's NLL, and of classifiers whether it is right, its entropy and its mutual information."""
    found: dict[str, list[float]] = {"nll": [round(value, 4) for value in per_example["nll"].tolist()]}
    if "log_probs" in per_example:
        found["right"] = (per_example["log_probs"].argmax(1) == per_example["targets"]).int().tolist()
        for name in ("entropy", "mutual_information"):
            found[name] = [float(f"{value:.4g}") for value in per_example[name].tolist()]
    return found


def tempered(per_example: PerExample, temperature: float) -> PerExample:
    """Return what the class probabilities p say when they are as confident as under a temperature T.

    The probabilities are p^(1/T), normalised: of one network, its logits over T; of several, their mixture's. The most
    probable class is the same. They are read as those of one draw, so that there is no mutual information.
    """
    if "log_probs" not in per_example or len(per_example["nll"]) != len(per_example["targets"]):
        raise ValueError("Expected argument `temperature` to be None but for one class an example. Leave it out.")
    log_probs, targets = (per_example["log_probs"].double() / temperature).log_softmax(1), per_example["targets"]
    found = PerExample()
    entropy = -(log_probs.exp() * log_probs).nan_to_num().sum(1)
    nll = -log_probs.gather(1, targets.unsqueeze(1)).squeeze(1)
    block = {"nll": nll, "log_probs": log_probs, "targets": targets, "entropy": entropy}
    found.add({**block, "mutual_information": torch.zeros_like(entropy)})
    return found


def intervals(per_example: PerExample, resamples: int, seed: int) -> dict[str, list[float]]:
    """Return 95% bootstrap intervals over examples of the main scores.

    Chance gaps within bins push the ECE up, and resampling pushes it up once more, so that percentiles of resamples are
    too high. Its interval is therefore the basic one, which mirrors them, extended to the score itself if need be.
    """

    def interval(metric: Callable[..., Tensor] | None, *arrays: Tensor, method: str = "percentile") -> list[float]:
        return list(metrics.bootstrap_interval(metric, *arrays, resamples=resamples, seed=seed, method=method))

    def rmse(squares: Tensor) -> Tensor:
        return squares.mean().sqrt()

    found = {"nll": interval(None, per_example["nll"])}
    if "target" in per_example:
        target, low, high = per_example["target"], per_example["low"], per_example["high"]
        inside = ((low <= target) & (target <= high)).double()
        found["rmse"] = interval(rmse, (per_example["mean"] - target).square())
        found["crps"] = interval(None, per_example["crps"])
        found["coverage"] = interval(None, inside)
        return found
    probs, targets = per_example["log_probs"].exp(), per_example["targets"]
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


def member_scores(per_example: PerExample) -> list[dict[str, float]]:
    """Return the NLL, accuracy and ECE of each member alone; none if there is one member."""
    if "member_nll" not in per_example:
        return []
    columns = (per_example[name].T for name in ("member_nll", "member_confidence", "member_right"))
    return [
        {
            "nll": nll.mean().item(),
            "accuracy": right.mean().item(),
            "ece": metrics.expected_calibration_error(*metrics.from_confidence(confidence, right)).item(),
        }
        for nll, confidence, right in zip(*columns, strict=True)
    ]


def diversity(per_example: PerExample, scores: dict[str, float | None]) -> dict[str, Any] | None:
    """Return how much the members differ (section 3.6); None if there is one member."""
    if "pairs" not in per_example:
        return None
    kl = per_example["pair_kl"].mean()
    return {
        "disagreement": scores["disagreement"],
        "normalised_disagreement": scores["normalised_disagreement"],
        "kl": kl.item() if kl.isfinite() else None,
        "cosine_similarity": per_example["pair_cosine"].mean().item(),
        "pairs": (per_example["pairs"].sum(0) / len(per_example["pair_kl"])).tolist(),
    }


def pairs(per_example: PerExample) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return the scores of draws alone, of pairs of draws within members and between members, and of all draws mixed.

    Each has a value and its standard error over examples. ``nll_gain`` and ``accuracy_gain`` are what a mixture gains
    over its draws alone, on the same examples.
    """
    names = ("nll", "accuracy", "disagreement", "total_variation", "kl")
    kinds = {
        kind: {name: per_example[f"{kind}_{name}"] for name in names if f"{kind}_{name}" in per_example}
        for kind in ("alone", "within", "between")
    }
    if alone := kinds["alone"]:
        right = (per_example["log_probs"].argmax(1) == per_example["targets"]).double()
        kinds["all"] = {"nll": per_example["nll"], "accuracy": right}
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
