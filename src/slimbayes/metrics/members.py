"""Any score of each member alone."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["per_member"]


def per_member(metric: Callable[..., Any], outputs: Tensor | Sequence[Tensor], *targets: Tensor, **options: Any) -> Any:
    """Return the metric of each member alone, ``(members,)``; of a curve, the members are each array's first axis.

    Args:
        metric: Any of the functions of ``sb.metrics``.
        outputs: What the metric takes of a prediction, with the members on the first axis: ``p.member_probs``, or
            several such as mean and standard deviation; where the metric takes draws, that axis follows,
            ``(members, samples, batch, *)``: ``mean.unflatten(0, (p.members, -1))``.
        targets: What all members share: the targets, where the metric takes them.
        options: Further arguments of the metric.

    Example:
        >>> from slimbayes.metrics import accuracy
        >>> per_member(accuracy, torch.tensor([[[0.9, 0.1]], [[0.2, 0.8]]]), torch.tensor([0])).tolist()
        [1.0, 0.0]
    """
    parts = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    lengths = [len(part) for part in parts]
    if len(set(lengths)) != 1 or not lengths[0]:
        raise ValueError(
            f"Expected argument `outputs` to have the members on the first axis of each tensor, but got {lengths} of "
            "them."
        )
    scores = [metric(*own, *targets, **options) for own in zip(*parts, strict=True)]
    if isinstance(scores[0], tuple):  # a curve's arrays
        return type(scores[0])(*map(torch.stack, zip(*scores, strict=True)))
    return torch.stack(scores)
