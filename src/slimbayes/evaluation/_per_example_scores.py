"""What scores need of each example, gathered block by block: of the mixture, of each member, and of pairs of draws."""

import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from slimbayes import metrics
from slimbayes.data.dataset import Task
from slimbayes.likelihoods import Bernoulli, Categorical, Gaussian, mixture
from slimbayes.metrics import OOD_MEASURES, crps
from slimbayes.prediction import Prediction

#: Probability inside the intervals whose coverage and width are scored.
LEVEL = 0.9


class PerExample:
    """Figures of each example by name; their first axis counts examples, or an example's several labels.

    Example:
        >>> per_example = PerExample()
        >>> per_example.add({"nll": torch.ones(2)})
        >>> per_example.add({"nll": torch.zeros(1)})
        >>> per_example["nll"]
        tensor([1., 1., 0.])
    """

    def __init__(self) -> None:
        self._blocks: dict[str, list[Tensor]] = {}

    def add(self, block: dict[str, Tensor]) -> None:
        """Take in the figures of a block."""
        for name, values in block.items():
            self._blocks.setdefault(name, []).append(values)

    def __contains__(self, name: object) -> bool:
        return name in self._blocks

    def __getitem__(self, name: str) -> Tensor:
        blocks = self._blocks[name]
        if len(blocks) > 1:
            self._blocks[name] = [torch.cat(blocks)]
        return self._blocks[name][0]


def first_samples(prediction: Prediction, samples: int) -> Prediction:
    """Return what the first few samples of each member predict, in double precision.

    Example:
        >>> draws = torch.arange(4.0).view(4, 1, 1)  # two members with two samples each
        >>> first_samples(Prediction(draws, members=2), 1).draws.flatten()
        tensor([0., 2.], dtype=torch.float64)
    """
    each = prediction.outputs.unflatten(0, (prediction.members, -1))[:, :samples]
    return replace(prediction, draws=each.flatten(0, 1).double())


def read(prediction: Prediction, targets: Tensor, task: Task, out: bool = False) -> dict[str, Tensor]:
    """Return the figures of a block.

    Args:
        prediction: In double precision.
        targets: As the data set gives them; not looked at if ``out``.
        task: What is predicted; regressions are read in the target's own units.
        out: Whether the examples are out of distribution: only the measures that tell them apart are read.
    """
    reading = prediction.likelihood
    if reading is not None and not isinstance(reading, (Bernoulli, Categorical, Gaussian)):
        raise ValueError(
            f"The {reading.name} likelihood has no evaluation of its own. Score it by "
            "prediction.log_likelihood(targets), or train with 'categorical', 'bernoulli' or 'gaussian'."
        )
    if isinstance(reading, Gaussian):
        return {} if out else _regression(prediction, targets, task)
    measures = {f"ood_{name}": _each(measure(prediction)) for name, measure in OOD_MEASURES.items()}
    return measures if out else measures | _classification(prediction, targets)


def _each(values: Tensor) -> Tensor:
    """Return one value for each example: the mean over its labels, if it has several."""
    return values.reshape(len(values), -1).mean(1)


def _classification(prediction: Prediction, targets: Tensor) -> dict[str, Tensor]:
    log_probs = prediction.class_log_probs
    classes = log_probs.shape[-1]
    # Ranked and counted in single precision, which halves what is kept of a large test set.
    figures = {
        "nll": -prediction.log_likelihood(targets),
        "log_probs": log_probs.reshape(-1, classes).float(),
        "targets": targets.long().flatten(),
        "entropy": _each(prediction.entropy),
        "mutual_information": _each(prediction.mutual_information),
    }
    # Members vote, or draws if there is one member.
    votes = prediction.member_probs if prediction.members > 1 else prediction.draw_log_probs
    if len(votes) > 1:
        figures["disagreement"] = _each(prediction.disagreement)
        figures["voters_right"] = _each((votes.argmax(-1) == targets.long()).double().mean(0))
    return figures


def _regression(prediction: Prediction, targets: Tensor, task: Task) -> dict[str, Tensor]:
    mean, noise = (moment.reshape(*moment.shape[:2], -1) for moment in prediction.moments)  # (draws, batch, targets)
    truth = targets.double().reshape(mean.shape[1:])
    low, high = (bound.reshape(truth.shape) for bound in prediction.interval(LEVEL))
    std = task.target_std
    each = truth.shape[1]
    figures: dict[str, Any] = {
        "nll": -prediction.log_likelihood(targets) + each * torch.tensor(std, dtype=torch.float64).log(),
        "target": truth * std + task.target_mean,
        "mean": mean.mean(0) * std + task.target_mean,
        "std": prediction.std.reshape(truth.shape) * std,
        "aleatoric_std": prediction.aleatoric_std.reshape(truth.shape) * std,
        "epistemic_std": prediction.epistemic_std.reshape(truth.shape) * std,
        "crps": crps(mean.flatten(1), noise.flatten(1), truth.flatten(), reduction="none") * std,
        "low": low * std + task.target_mean,
        "high": high * std + task.target_mean,
        # Where the target lies in the mixture: uniform if the predictions are calibrated.
        "rank": torch.special.ndtr((truth - mean) / noise.clamp_min(1e-300)).mean(0),
    }
    return {name: values if name == "nll" else values.flatten() for name, values in figures.items()}


# ---------------------------------------------------------------------- members


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


# ---------------------------------------------------------------------- pairs of draws


def read_pairs(prediction: Prediction, targets: Tensor, out: bool = False) -> dict[str, Tensor]:
    """Return what scores of single draws and of pairs of draws need of a block.

    Pairs ``within`` are two draws of one member, which differ by their noise; pairs ``between`` are of two members.
    Both mix two networks, so that they can be compared.

    Args:
        prediction: In double precision.
        targets: As the data set gives them; not looked at if ``out``.
        out: Whether the examples are out of distribution.

    Shape:
        Each ``(examples,)``, means over draws or pairs: ``alone_nll``, ``alone_accuracy``, and of either kind of pairs,
        unless there is none, ``nll`` and ``accuracy`` of the mixture of the two, their ``disagreement``,
        ``total_variation`` and ``kl`` (symmetric).

    Example:
        >>> draws = torch.tensor([[[0.0, 9.0]], [[9.0, 0.0]]])  # one member that says one thing, then the other
        >>> found = read_pairs(Prediction(draws, likelihood=Categorical()), torch.tensor([1]))
        >>> round(found["alone_nll"].item(), 2), round(found["within_nll"].item(), 2)  # log(2) of the two together
        (4.5, 0.69)
    """
    if isinstance(prediction.likelihood, Gaussian) or prediction.draw_log_probs[0, ..., 0].numel() != len(targets):
        raise ValueError("Expected argument `pairs` to be False but for one class an example. Leave it out.")
    draws, truth = prediction.draw_log_probs.flatten(1, -2), targets.long().flatten()
    found = {} if out else {f"alone_{name}": each for name, each in _mixed(draws, truth).items()}
    each = len(draws) // prediction.members
    kinds: dict[str, list[dict[str, Tensor]]] = {}
    for one, other in combinations(range(len(draws)), 2):
        figures = _pair(draws[one], draws[other], None if out else truth)
        kinds.setdefault("within" if one // each == other // each else "between", []).append(figures)
    for kind, pairs in kinds.items():
        found |= {f"{kind}_{name}": torch.stack([one[name] for one in pairs]).mean(0) for name in pairs[0]}
    return found


def _pair(one: Tensor, other: Tensor, truth: Tensor | None) -> dict[str, Tensor]:
    """Return the figures of two draws, given the log-probabilities of each, ``(examples, classes)``."""
    found = {
        "disagreement": (one.argmax(1) != other.argmax(1)).double(),
        "total_variation": (one.exp() - other.exp()).abs().sum(1) / 2,
        "kl": metrics.pairwise_kl(torch.stack([one, other]), reduction="none"),
    }
    both = torch.logaddexp(one, other) - math.log(2)
    return found if truth is None else found | _mixed(both.unsqueeze(0), truth)


def _mixed(log_probs: Tensor, truth: Tensor) -> dict[str, Tensor]:
    """Return the NLL and whether the most probable class is right, means over the first axis."""
    nll = -log_probs.gather(2, truth.expand(len(log_probs), -1).unsqueeze(2)).squeeze(2)
    return {"nll": nll.mean(0), "accuracy": (log_probs.argmax(2) == truth).double().mean(0)}
