"""How much the members of a mixture differ (section 3.6), after Fort et al. (2019)."""

import math

import torch
from torch import Tensor

from slimbayes.metrics._inputs import as_members, as_targets, reduce

__all__ = ["cosine_similarity", "disagreement", "normalised_disagreement", "pairwise_disagreement", "pairwise_kl"]


def disagreement(member_probs: Tensor, reduction: str = "mean") -> Tensor:
    """Return the share of examples on which two members' labels differ, averaged over all pairs of members.

    Args:
        member_probs: ``(members, batch, classes)``: ``p.member_probs``.
        reduction: ``"mean"``, or ``"none"`` for the share of differing pairs of each example, ``(batch,)``.

    Example:
        >>> disagreement(torch.tensor([[[0.9, 0.1]], [[0.2, 0.8]], [[0.3, 0.7]]])).item()
        0.6666666666666667
    """
    probs = as_members("member_probs", member_probs, bounds=None)
    votes = torch.nn.functional.one_hot(probs.argmax(2), probs.shape[2]).sum(0)
    agreeing = (votes * (votes - 1)).sum(1).double()
    return reduce(1 - agreeing / (len(probs) * (len(probs) - 1)), reduction)


def normalised_disagreement(member_probs: Tensor, targets: Tensor) -> Tensor:
    r"""Return the disagreement divided by :math:`1 - acc`, with the mean accuracy of the members.

    The less accurate a member, the more random its predictions can be. NaN if all members are always right.

    Args:
        member_probs: ``(members, batch, classes)``: ``p.member_probs``.
        targets: ``(batch,)`` of class numbers.

    Example:
        >>> members = torch.tensor([[[0.9, 0.1]], [[0.2, 0.8]]])
        >>> normalised_disagreement(members, torch.tensor([0])).item()
        2.0
    """
    return disagreement(member_probs) / member_errors(member_probs, targets).mean()


def pairwise_disagreement(member_probs: Tensor) -> Tensor:
    """Return the share of examples on which each two members' labels differ, ``(members, members)``.

    Args:
        member_probs: ``(members, batch, classes)``: ``p.member_probs``.

    Example:
        >>> pairwise_disagreement(torch.tensor([[[0.9, 0.1]], [[0.2, 0.8]]])).tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """
    return differing(member_probs) / member_probs.shape[1]


def pairwise_kl(member_log_probs: Tensor, reduction: str = "mean") -> Tensor:
    r"""Return :math:`\frac1{K(K-1)} \sum_{i \ne j} KL(p_i \| p_j)`, in nats, averaged over examples.

    It is symmetric: each pair counts in both directions. Logarithms are asked for because a probability that is
    rounded to 0 makes it infinite.

    Args:
        member_log_probs: ``(members, batch, classes)``: ``p.draw_log_probs`` with one sample of each member, else
            ``p.member_probs.log()``.
        reduction: ``"mean"``, or ``"none"`` for each example's, ``(batch,)``.

    Example:
        >>> members = torch.tensor([[[0.75, 0.25]], [[0.25, 0.75]]])
        >>> round(pairwise_kl(members.log()).item(), 4)  # log(3) / 2
        0.5493
    """
    log_probs = as_members("member_log_probs", member_log_probs, bounds=(-math.inf, 0.0))
    probs = log_probs.exp()
    total = torch.zeros_like(probs[0, :, 0])
    for own, log_own in zip(probs, log_probs, strict=True):
        total = total + torch.where(own > 0, own * (log_own - log_probs), 0.0).sum((0, 2))
    return reduce(total / (len(probs) * (len(probs) - 1)), reduction)


def cosine_similarity(member_probs: Tensor, reduction: str = "mean") -> Tensor:
    r"""Return the cosine of the angle between two members' probability vectors, averaged over pairs and examples.

    Args:
        member_probs: ``(members, batch, classes)``: ``p.member_probs``.
        reduction: ``"mean"``, or ``"none"`` for each example's, ``(batch,)``.

    Example:
        >>> round(cosine_similarity(torch.tensor([[[0.8, 0.2]], [[0.2, 0.8]]])).item(), 4)
        0.4706
    """
    probs = as_members("member_probs", member_probs, bounds=(0.0, 1.0))
    unit = probs / probs.norm(dim=2, keepdim=True)
    members = len(probs)
    return reduce((unit.sum(0).square().sum(1) - members) / (members * (members - 1)), reduction)


# ---------------------------------------------------------------------- what the functions and the classes share


def member_errors(member_probs: Tensor, targets: Tensor) -> Tensor:
    """Return the share of members that are wrong on each example, ``(batch,)``."""
    probs = as_members("member_probs", member_probs, bounds=None)
    labels, targets = probs.argmax(2), as_targets(targets, probs.shape[2])
    if targets.shape != labels.shape[1:]:
        raise ValueError(
            f"Expected argument `targets` of shape {tuple(labels.shape[1:])}, but got {tuple(targets.shape)}."
        )
    return (labels != targets).double().mean(0)


def differing(member_probs: Tensor) -> Tensor:
    """Return the number of examples on which each two members' labels differ, ``(members, members)``."""
    labels = as_members("member_probs", member_probs, bounds=None).argmax(2)
    return torch.stack([(own != labels).double().sum(1) for own in labels])
