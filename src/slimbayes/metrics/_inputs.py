"""What every score asks of its arguments, and what it gives back."""

from typing import Any

import torch
from torch import Tensor

from slimbayes._checks import check_choice

__all__ = ["UndefinedScoreError", "as_classes", "as_double", "as_members", "reduce"]


class UndefinedScoreError(ValueError):
    """A score that these examples do not determine, such as the AUC of one class."""


def as_double(argument: str, values: Any) -> Tensor:
    """Return the values in double precision; raise if some are NaN or if there are none."""
    values = torch.as_tensor(values)
    if values.device.type == "mps":  # which has no double precision
        values = values.cpu()
    if not values.numel():
        raise ValueError(
            f"Expected argument `{argument}` to hold at least one example, but got shape {tuple(values.shape)}."
        )
    if values.isnan().any():
        raise ValueError(f"Expected argument `{argument}` to have no NaN. Check the model's outputs and the data.")
    return values.double()


def as_classes(argument: str, probs: Any, targets: Any, bounds: tuple[float, float] | None) -> tuple[Tensor, Tensor]:
    """Return probabilities ``(batch, classes)`` in double precision and targets ``(batch,)`` as integers.

    Args:
        argument: The name of ``probs``.
        probs: Probabilities, or their logarithms.
        targets: Class numbers.
        bounds: Where ``probs`` must lie, but for rounding; None if their order alone counts.
    """
    shape, wanted = tuple(torch.as_tensor(probs).shape), tuple(torch.as_tensor(targets).shape)
    if len(shape) != 2 or wanted != shape[:1]:
        raise ValueError(
            f"Expected argument `{argument}` of shape (batch, classes) and `targets` of shape (batch,), but got "
            f"{shape} and {wanted}. Flatten positions into the batch first; turn probabilities of yes into those of "
            "two classes with sb.metrics.two_class(p.probs)."
        )
    rounding = 8 * torch.finfo(probs.dtype).eps if torch.is_tensor(probs) and probs.is_floating_point() else 0.0
    probs, numbers = as_double(argument, probs), as_double("targets", targets)
    if bounds is not None:
        _check_bounds(argument, probs, bounds, 1e-6 + rounding)
    wrong = (numbers < 0) | (numbers >= shape[1]) | (numbers != numbers.round())
    if wrong.any():
        raise ValueError(
            f"Expected argument `targets` to hold classes from 0 to {shape[1] - 1}, but got "
            f"{numbers[wrong][0].item():g}. Check the labels."
        )
    return probs, numbers.long()


def as_members(argument: str, values: Any, bounds: tuple[float, float] | None) -> Tensor:
    """Return ``(members, batch, classes)`` in double precision, of at least two members."""
    shape = tuple(torch.as_tensor(values).shape)
    if len(shape) != 3 or shape[0] < 2:
        raise ValueError(
            f"Expected argument `{argument}` of shape (members, batch, classes) with at least two members, but got "
            f"{shape}. Pass p.member_probs (its logarithm where log-probabilities are asked for)."
        )
    values = as_double(argument, values)
    if bounds is not None:
        _check_bounds(argument, values, bounds, 1e-4)
    return values


def reduce(values: Tensor, reduction: str) -> Tensor:
    """Return one value for each example, ``(batch,)``, or their mean."""
    check_choice("reduction", reduction, ("mean", "none"))
    return values.mean() if reduction == "mean" else values


def _check_bounds(argument: str, values: Tensor, bounds: tuple[float, float], rounding: float) -> None:
    low, high = bounds
    wrong = (values < low - rounding) | (values > high + rounding)
    if wrong.any():
        kind = "probabilities" if low == 0 else "logarithms of probabilities"
        remedy = "Pass p.probs, or logits.softmax(-1)." if low == 0 else "Pass p.log_probs, or probs.log()."
        worst = max(values[wrong].tolist(), key=abs)
        raise ValueError(f"Expected argument `{argument}` to hold {kind}, but got {worst:g}. {remedy}")
