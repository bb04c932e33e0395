"""What every score asks of its arguments, and what it gives back."""

from typing import Any

import torch
from torch import Tensor

from slimbayes._checks import check_choice

Bounds = tuple[float, float] | None

#: How far from 1 the probabilities of all classes may sum to.
_SUM_ERROR = 0.01


class UndefinedScoreError(ValueError):
    """A score that these examples do not determine, such as the AUC of one class."""


def as_tensor(argument: str, values: Any) -> Tensor:
    """Return a tensor; raise if the values are no numbers."""
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"Expected argument `{argument}` to be a tensor of numbers, but got {type(values).__name__}. Pass a "
            "tensor, an array or nested lists."
        ) from error


def as_double(argument: str, values: Any) -> Tensor:
    """Return the values in double precision; raise if some are NaN or if there are none."""
    values = as_tensor(argument, values)
    if values.device.type == "mps":  # which has no double precision
        values = values.cpu()
    if not values.numel():
        raise ValueError(
            f"Expected argument `{argument}` to hold at least one example, but got shape {tuple(values.shape)}."
        )
    if values.isnan().any():
        raise ValueError(f"Expected argument `{argument}` to have no NaN. Check the model's outputs and the data.")
    return values.double()


def as_probs(argument: str, values: Any, bounds: Bounds, complete: bool = False) -> Tensor:
    """Return probabilities ``(..., classes)``, or their logarithms, in double precision.

    Args:
        argument: The name of ``values``.
        values: Probabilities, or their logarithms.
        bounds: Where they must lie, but for rounding; None if their order alone counts.
        complete: Whether all classes are there, so that they sum to 1; else to at most 1.
    """
    values = as_tensor(argument, values)
    rounding = 8 * torch.finfo(values.dtype).eps if values.is_floating_point() else 0.0
    values = as_double(argument, values)
    if bounds is not None:
        logarithms = bounds[0] < 0
        kind = "logarithms of probabilities" if logarithms else "probabilities"
        remedy = (
            "Pass p.log_probs, or probs.log()."
            if logarithms
            else "Pass p.probs, or logits.softmax(-1) (of one logit, its sigmoid)."
        )
        wrong = (values < bounds[0] - 1e-6 - rounding) | (values > bounds[1] + 1e-6 + rounding)
        if wrong.any():
            worst = max(values[wrong].tolist(), key=abs)
            raise ValueError(f"Expected argument `{argument}` to hold {kind}, but got {worst:g}. {remedy}")
        sums = values.logsumexp(-1).exp() if logarithms else values.sum(-1)
        wrong = (sums - 1 > _SUM_ERROR + rounding) | (complete & (1 - sums > _SUM_ERROR + rounding))
        if wrong.any():
            raise ValueError(
                f"Expected argument `{argument}` to hold {kind} that sum to 1 over the classes, but got a sum of "
                f"{sums[wrong][0].item():g}. {remedy} Several labels: flatten them into the batch, and see "
                "sb.metrics.two_class."
            )
    return values


def as_targets(targets: Any, classes: int) -> Tensor:
    """Return class numbers as integers."""
    numbers = as_double("targets", targets)
    wrong = (numbers < 0) | (numbers >= classes) | (numbers != numbers.round())
    if wrong.any():
        raise ValueError(
            f"Expected argument `targets` to hold classes from 0 to {classes - 1}, but got "
            f"{numbers[wrong][0].item():g}. Check the labels."
        )
    return numbers.long()


def as_classes(
    argument: str, probs: Any, targets: Any, bounds: Bounds, complete: bool = False
) -> tuple[Tensor, Tensor]:
    """Return probabilities ``(batch, classes)`` in double precision and targets ``(batch,)`` as integers.

    Positions ``(batch, *, classes)`` with targets ``(batch, *)`` count as examples.

    Args:
        argument: The name of ``probs``.
        probs: As in ``as_probs``.
        targets: Class numbers.
        bounds: As in ``as_probs``.
        complete: As in ``as_probs``.
    """
    shape, wanted = tuple(as_tensor(argument, probs).shape), tuple(as_tensor("targets", targets).shape)
    if len(shape) < 2 or wanted != shape[:-1]:
        raise ValueError(
            f"Expected argument `{argument}` of shape (batch, classes) and `targets` of shape (batch,), but got "
            f"{shape} and {wanted}, which do not belong together. Turn probabilities of yes into those of "
            "two classes with sb.metrics.two_class(p.probs)."
        )
    probs, targets = torch.as_tensor(probs).flatten(0, -2), torch.as_tensor(targets).flatten()
    return as_probs(argument, probs, bounds, complete), as_targets(targets, shape[-1])


def as_members(argument: str, values: Any, bounds: Bounds) -> Tensor:
    """Return ``(members, batch, classes)`` in double precision, of at least two members."""
    shape = tuple(as_tensor(argument, values).shape)
    if len(shape) != 3 or shape[0] < 2:
        raise ValueError(
            f"Expected argument `{argument}` of shape (members, batch, classes) with at least two members, but got "
            f"{shape}. Pass p.member_probs (its logarithm where log-probabilities are asked for)."
        )
    return as_probs(argument, values, bounds, complete=True)


def reduce(values: Tensor, reduction: str) -> Tensor:
    """Return one value for each example, ``(batch,)``, or their mean."""
    check_choice("reduction", reduction, ("mean", "none"))
    return values.mean() if reduction == "mean" else values
