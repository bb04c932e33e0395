"""The examples of a prediction: which axis they are on, and how to divide them."""

from dataclasses import replace

import torch
from torch import Tensor

from slimbayes._checks import check_count, check_number
from slimbayes.prediction import Prediction

__all__ = ["batch_axis", "calibration_split", "checked_outputs", "checked_targets", "rows_of"]


def batch_axis(prediction: Prediction) -> int:
    """Return the axis of the examples in ``(batch, *)``, without the draws' axis; it is that of ``batch_first``."""
    far = prediction.batch_dim > 0 and prediction.outputs.dim() > prediction.batch_dim + 2
    return prediction.batch_dim if far else 0


def checked_outputs(prediction: Prediction) -> Tensor:
    """Return the outputs, or raise if they are none."""
    if not isinstance(prediction, Prediction):
        raise TypeError(
            f"Expected argument `prediction` to be a Prediction, but got {type(prediction).__name__}. Pass "
            "model.predict(x), or sb.Prediction(outputs, likelihood)."
        )
    outputs = prediction.outputs
    if outputs.dim() < 2 or not outputs.numel():
        raise ValueError(
            f"Expected argument `prediction` to have outputs of shape (draws, batch, *) with an example at least, but "
            f"got {tuple(outputs.shape)}. Predict some examples first."
        )
    if outputs.isnan().any():
        raise ValueError("Expected argument `prediction` to have no NaN in its outputs. Check the model.")
    return outputs


def checked_targets(prediction: Prediction, targets: Tensor) -> Tensor:
    """Return the targets as a tensor beside the outputs, or raise if the two do not belong together."""
    outputs, axis = checked_outputs(prediction), batch_axis(prediction)
    targets = torch.as_tensor(targets, device=outputs.device)
    examples = outputs.shape[axis + 1]
    if targets.dim() <= axis or targets.shape[axis] != examples:
        raise ValueError(
            f"Expected argument `targets` to have a target for each of the {examples} examples of the prediction, but "
            f"got shape {tuple(targets.shape)}. Pass the targets of the inputs that were predicted."
        )
    if targets.is_floating_point() and not targets.isfinite().all():
        raise ValueError("Expected argument `targets` to hold finite numbers. Drop the examples without a target.")
    return targets


def rows_of(prediction: Prediction, targets: Tensor, rows: Tensor | slice) -> tuple[Prediction, Tensor]:
    """Return some of the examples: copies for a tensor of numbers, views for a slice."""
    axis = batch_axis(prediction)
    before = (slice(None),) * axis
    return replace(prediction, draws=prediction.outputs[(slice(None), *before, rows)]), targets[(*before, rows)]


def calibration_split(
    prediction: Prediction, targets: Tensor, fraction: float = 0.5, seed: int = 0
) -> tuple[tuple[Prediction, Tensor], tuple[Prediction, Tensor]]:
    """Divide a prediction of held-out data at random into a part to calibrate with and a part to test on.

    Both keep the order of their examples. A further part, for a second calibrator, is a split of the first.

    Args:
        prediction: Of data that the model was not trained on.
        targets: ``(batch, *)``.
        fraction: Share of the examples in the first part.
        seed: Seeds the choice.

    Example:
        >>> p = Prediction(torch.randn(4, 10, 3), members=4)
        >>> calibration, test = calibration_split(p, torch.arange(10) % 3, fraction=0.3)
        >>> calibration[0].probs.shape, test[1].shape
        (torch.Size([3, 3]), torch.Size([7]))
    """
    check_number("fraction", fraction, 0.0, 1.0, "It is the share of the examples to calibrate with, such as 0.5.")
    check_count("seed", seed, 0)
    targets = checked_targets(prediction, targets)
    examples = targets.shape[batch_axis(prediction)]
    first = round(fraction * examples)
    if not 0 < first < examples:
        raise ValueError(
            f"Expected argument `fraction` to leave an example on each side, but {fraction:g} of {examples} is "
            f"{first}. Predict more examples, or give another fraction."
        )
    order = torch.randperm(examples, generator=torch.Generator().manual_seed(seed))
    calibration, test = (part.sort().values.to(targets.device) for part in order.split((first, examples - first)))
    return rows_of(prediction, targets, calibration), rows_of(prediction, targets, test)
