"""Each member by itself, and how unlike members are."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from slimbayes import metrics
from slimbayes.evaluation.readings import Readings
from slimbayes.likelihoods import Gaussian, mixture
from slimbayes.prediction import Prediction

__all__ = ["diversity", "member_scores", "read_members"]


def read_members(prediction: Prediction, targets: Tensor) -> dict[str, Tensor]:
    """Return what scores of single members and their diversity need of a block; nothing if there is one member.

    Shape:
        - ``member_nll``: ``(examples, members)``, summed over an example's labels as the mixture's is.
        - ``member_confidence``, ``member_right``: ``(labels of examples, members)``.
        - ``pair_kl``, ``pair_cosine``: ``(labels of examples,)``.
        - ``pairs``: ``(1, members, members)``, summed over the block; ``pair_count``: ``(1,)``.
    """
    if prediction.members == 1 or isinstance(prediction.likelihood, Gaussian):
        return {}
    draws = prediction.draw_log_probs.unflatten(0, (prediction.members, -1))
    log_probs = mixture(draws.transpose(0, 1)).flatten(1, -2)  # (members, labels of examples, classes)
    probs, truth = log_probs.exp(), targets.long().flatten()
    confidence, label = probs.max(-1)
    each = prediction.outputs.unflatten(0, (prediction.members, -1))
    nll = [-replace(prediction, draws=own, members=1).log_likelihood(targets) for own in each]
    return {
        "member_nll": torch.stack(nll, 1),
        "member_confidence": confidence.T,
        "member_right": (label == truth).double().T,
        "pair_kl": metrics.pairwise_kl(log_probs, reduction="none"),
        "pair_cosine": metrics.cosine_similarity(probs, reduction="none"),
        "pairs": (metrics.pairwise_disagreement(probs) * len(truth)).unsqueeze(0),
    }


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
    """Return how unlike the members are (section 3.6); None if there is one member."""
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
