"""Likelihoods of classes: categorical, and yes or no."""

import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from slimbayes._checks import check_number
from slimbayes.likelihoods.base import (
    Likelihood,
    check_range,
    check_shape,
    known_within,
    mixture,
    per_example,
    squeeze_to,
)

__all__ = ["Bernoulli", "Categorical"]

#: Classes from which on torch's CPU kernel takes several of a row at once. Below, it is several rows that must be.
LONG_ROWS = 16
#: Of fewer, calls of operations take longer than what they compute.
FEW_LOGITS = 2**15
#: How far from 1 the probabilities of a target may sum to.
SUM_ERROR = 0.01


class Categorical(Likelihood):
    r"""Classes from logits: :math:`\log p(y) = \log \text{softmax}(f)_y`, summed over an example's positions.

    The axis of the classes is, as in torch's cross-entropy, the one that the outputs have and the targets lack:
    ``(draws, batch, class, height, width)`` with targets ``(batch, height, width)``, or ``(draws, batch, time, class)``
    with ``(batch, time)``. The first targets decide it, and ``class_dim`` remembers. Where sizes coincide, it is the
    first after the batch for maps (torch's rule), and the last, with a warning, where there is one position axis.

    Args:
        class_dim: Axis of the classes in ``(draws, batch, *)``, such as -1 or 2; None for what the targets say.
        ignore_index: Target of positions that do not count.
        class_weight: Weight of each class in training; scores do not know it. With :math:`w_c` the objective has
            :math:`w_y \log p(y)`, and divides by the number of examples, not by their weights.
        label_smoothing: :math:`\epsilon` of training: the targets are :math:`(1 - \epsilon)` times what they are plus
            :math:`\epsilon / C` for each class, as in torch.

    Shape:
        - Outputs: ``(draws, batch, *, classes)``. Targets: ``(batch, *)`` of class numbers, or
          ``(batch, *, classes)`` of probabilities.

    Example:
        >>> Categorical().log_prob(torch.zeros(4, 2, 3), torch.tensor([0, 2]))[0]
        tensor([-1.0986, -1.0986])
        >>> maps = Categorical()
        >>> maps.log_prob(torch.zeros(4, 2, 3, 8, 8), torch.zeros(2, 8, 8).long()).shape, maps.class_dim
        (torch.Size([4, 2]), 2)
    """

    name = "categorical"

    def __init__(
        self,
        class_dim: int | None = None,
        ignore_index: int = -100,
        class_weight: Sequence[float] | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        if class_dim in (0, 1):
            raise ValueError(
                f"Expected argument `class_dim` to be an axis of (draws, batch, *, classes) from 2 on, or negative, "
                f"but got {class_dim}. The first two are the draws and the batch."
            )
        check_number("label_smoothing", label_smoothing, 0.0, 1.0, or_low=True)
        self.class_dim = class_dim
        self.ignore_index = ignore_index
        self.class_weight = None if class_weight is None else [float(weight) for weight in class_weight]
        for weight in self.class_weight or []:
            check_number("class_weight", weight, 0.0, or_low=True, remedy="Give a number for each class.")
        self.label_smoothing = label_smoothing

    # ------------------------------------------------------------------ the axis of the classes

    def class_axis(self, outputs: Tensor) -> int:
        """Return the axis of the classes in outputs that come without targets."""
        if self.class_dim is not None:
            return self.class_dim
        if outputs.dim() > 4:
            raise ValueError(
                f"Which axis of outputs of shape {tuple(outputs.shape)} has the classes is not known before the first "
                "targets. Train the model, or say so: likelihood=sb.Categorical(class_dim=2) for (draws, batch, class, "
                "height, width), -1 for the last."
            )
        return -1

    def _axis_for(self, outputs: Tensor, targets: Tensor) -> int:
        """Return the axis of the classes, and remember it if these are the first targets that tell."""
        if self.class_dim is not None or outputs.dim() < 4:
            return -1 if self.class_dim is None else self.class_dim
        shape, last = outputs.shape[1:], outputs.dim() - 2
        if targets.is_floating_point():
            fits = [axis for axis in range(1, last + 1) if targets.shape == shape and _sums_to_one(targets, axis)]
        else:
            fits = [axis for axis in range(1, last + 1) if targets.shape == shape[:axis] + shape[axis + 1 :]]
        torchs = last > 2 and (1 in fits or not fits)  # the rule for maps; if nothing fits, for the error
        axis = 1 if torchs else fits[0] if len(fits) == 1 else last
        if last == 2 and len(fits) == 2:
            warnings.warn(
                f"Outputs of shape {tuple(outputs.shape)} are read as (draws, batch, time, class); (draws, batch, "
                "class, length) has the same shape. Say which: likelihood=sb.Categorical(class_dim=-1), or 2.",
                stacklevel=5,
            )
        elif fits:
            self.class_dim = -1 if axis == last else axis + 1
        return -1 if axis == last else axis + 1

    # ------------------------------------------------------------------ log-probabilities

    def class_log_probs(self, outputs: Tensor) -> Tensor:
        """Return log-probabilities with the classes last."""
        return self._log_probs(outputs, self.class_axis(outputs)).contiguous()

    def _log_probs(self, outputs: Tensor, axis: int) -> Tensor:
        """Return log-probabilities with the classes last, in whatever layout is quick to make."""
        if outputs.dim() < 3:
            raise ValueError(
                f"Expected outputs of shape (draws, batch, *, classes), but got {tuple(outputs.shape)}. Pass model(x); "
                "one logit for yes or no is likelihood='bernoulli'."
            )
        if outputs.shape[axis] < 2:
            raise ValueError(
                f"Expected outputs of shape (draws, batch, *, classes) with two classes at least, but got "
                f"{tuple(outputs.shape)}. One logit for yes or no is likelihood='bernoulli'; or give the network two "
                "outputs."
            )
        if outputs.device.type == "cpu" and outputs.shape[axis] < LONG_ROWS:
            return outputs.movedim(axis, 0).contiguous().log_softmax(0).movedim(0, -1)
        return outputs.movedim(axis, -1).log_softmax(-1)

    def _weights(self, log_probs: Tensor) -> Tensor:
        classes = log_probs.shape[-1]
        if len(self.class_weight or []) != classes:
            raise ValueError(
                f"Expected argument `class_weight` to have a weight for each of the {classes} classes, but got "
                f"{self.class_weight}."
            )
        return log_probs.new_tensor(self.class_weight)

    def _pick(self, log_probs: Tensor, targets: Tensor, axis: int, training: bool) -> Tensor:
        """Return the log-likelihood, ``(draws, batch)``, from log-probabilities with the classes last.

        Args:
            log_probs: Of each draw.
            targets: As in ``log_prob``.
            axis: Where the outputs had the classes.
            training: Whether to weigh classes and to smooth labels.
        """
        if training and self.class_weight is not None:
            log_probs = log_probs * self._weights(log_probs)
        smoothing = self.label_smoothing if training else 0.0
        if targets.is_floating_point():
            class_dim = axis if axis < 0 else axis - 1
            shape = log_probs[0].movedim(-1, class_dim).shape
            check_shape(targets, shape, "Floating-point targets are probabilities; class numbers must be integers.")
            check_range(targets, 0, 1, "They are probabilities of the classes.")
            targets = targets.movedim(class_dim, -1)
            _check_sums(targets)
            return per_example(_smoothed((log_probs * targets).sum(-1), log_probs, smoothing))
        check_shape(
            targets,
            log_probs.shape[1:-1],
            "Outputs are (draws, batch, *, classes): pass model(x); of other axes, say which has the classes, as in "
            "sb.Categorical(class_dim=2). One-hot targets: .float(). Several labels for an example: "
            "likelihood='bernoulli'.",
        )
        classes = log_probs.shape[-1]
        keep: Tensor | None = None
        if 0 <= self.ignore_index < classes or not known_within(targets, 0, classes - 1):
            keep = targets != self.ignore_index
            targets = targets.where(keep, 0)
            remedy = (
                f"Check the labels, or give the network an output for each class. To ignore some: {self.ignore_index}."
            )
            check_range(targets, 0, classes - 1, remedy)
        index = targets.long().expand(log_probs.shape[:-1]).unsqueeze(-1)
        picked = _smoothed(log_probs.gather(-1, index).squeeze(-1), log_probs, smoothing)
        return per_example(picked if keep is None else picked.where(keep, 0.0))

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        axis = self._axis_for(outputs, targets)
        return self._pick(self._log_probs(outputs, axis), targets, axis, training=False)

    def training_log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return ``log_prob`` with class weights and smoothed labels."""
        axis = self._axis_for(outputs, targets)
        return self._pick(self._log_probs(outputs, axis), targets, axis, training=True)

    def mean_loss(self, outputs: Tensor, targets: Any) -> Tensor | None:
        """Return what ``-training_log_prob(outputs, targets).mean()`` is, where torch has one operation, else None.

        That is one class for each example, on a device that notices classes that do not exist, and few logits: for
        many, ``log_prob`` has a better layout.

        Example:
            >>> Categorical().mean_loss(torch.zeros(4, 2, 3), torch.tensor([0, 2]))
            tensor(1.0986)
        """
        known = outputs.device.type == "cpu" and outputs.dtype in (torch.float32, torch.float64)
        plain = outputs.dim() == 3 and self.class_dim in (None, -1, 2) and 0 < outputs.numel() < FEW_LOGITS
        fits = isinstance(targets, Tensor) and targets.dtype == torch.int64 and targets.shape == outputs.shape[1:2]
        if not (known and plain and fits) or self.class_weight or self.label_smoothing or torch.compiler.is_compiling():
            return None
        draws, batch, classes = outputs.shape
        if classes < 2:
            return None
        repeated = targets if draws == 1 else torch.cat([targets] * draws)  # in less time than `repeat`
        with suppress(IndexError):  # a class that does not exist, of which log_prob tells
            losses = F.cross_entropy(
                outputs.reshape(-1, classes), repeated, ignore_index=self.ignore_index, reduction="sum"
            )
            return losses / (draws * batch)
        return None

    def log_prob_of_mean(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        axis = self._axis_for(outputs, targets)
        log_probs = mixture(self._log_probs(outputs, axis)).unsqueeze(0)
        return self._pick(log_probs, targets, axis, training=True).squeeze(0)

    def spec(self) -> dict[str, Any]:  # noqa: D102
        return {
            "name": self.name,
            "class_dim": self.class_dim,
            "ignore_index": self.ignore_index,
            "class_weight": self.class_weight,
            "label_smoothing": self.label_smoothing,
        }


def _smoothed(picked: Tensor, log_probs: Tensor, smoothing: float) -> Tensor:
    return (1 - smoothing) * picked + smoothing * log_probs.mean(-1) if smoothing else picked


def _sums_to_one(targets: Tensor, axis: int) -> bool:
    return torch.compiler.is_compiling() or bool(((targets.sum(axis) - 1).abs() <= SUM_ERROR).all())


def _check_sums(targets: Tensor) -> None:
    """Raise unless the targets' probabilities, the classes last, sum to 1."""
    if not _sums_to_one(targets, -1):
        sums = targets.sum(-1)
        wrong = sums[~((sums - 1).abs() <= SUM_ERROR)][0].item()
        raise ValueError(
            f"Expected argument `targets` to have probabilities that sum to 1 over the classes, but got a sum of "
            f"{wrong:g}. Several labels for an example: likelihood='bernoulli'."
        )


class Bernoulli(Likelihood):
    r"""Yes or no from one logit, or several labels from one logit each: :math:`p(1) = \text{sigmoid}(f)`.

    Args:
        pos_weight: Weight of yes in training, a number, or one for each label on the last axis of the targets; scores
            do not know it. With w the objective has :math:`w\, y \log p(1) + (1 - y) \log p(0)`, as in torch.

    Shape:
        - Outputs: ``(draws, batch, *)`` or ``(draws, batch, *, 1)``. Targets: ``(batch, *)`` from 0 to 1.

    Example:
        >>> Bernoulli().log_prob(torch.zeros(4, 2, 1), torch.tensor([0, 1]))[0]
        tensor([-0.6931, -0.6931])
    """

    name = "bernoulli"

    def __init__(self, pos_weight: float | Sequence[float] | None = None) -> None:
        super().__init__()
        self.pos_weight = [float(weight) for weight in pos_weight] if isinstance(pos_weight, Sequence) else pos_weight
        weights = [pos_weight] if not isinstance(pos_weight, Sequence) else pos_weight
        for weight in [] if pos_weight is None else weights:
            check_number("pos_weight", weight, 0.0, remedy="Give the number of noes for a yes, such as 9.")

    def class_log_probs(self, outputs: Tensor) -> Tensor:
        """Return log-probabilities of no and yes, last."""
        one = outputs.dim() > 2 and outputs.shape[-1] == 1
        return self._log_probs(outputs.squeeze(-1) if one else outputs)

    def _log_probs(self, outputs: Tensor) -> Tensor:
        return torch.stack([F.logsigmoid(-outputs), F.logsigmoid(outputs)], -1)

    def _pick(self, log_probs: Tensor, targets: Tensor, training: bool) -> Tensor:
        """Return the log-likelihood, ``(draws, batch)``, from log-probabilities of no and yes."""
        no, yes = log_probs.unbind(-1)
        check_range(targets, 0, 1, "They are yes-or-no labels; for classes use likelihood='categorical'.")
        targets = targets.to(yes.dtype)
        if training and self.pos_weight is not None:
            weight = yes.new_tensor(self.pos_weight)
            if weight.dim() and (targets.dim() < 2 or len(weight) != targets.shape[-1]):
                raise ValueError(
                    f"Expected argument `pos_weight` to be a number, or one for each label on the last axis of targets "
                    f"of shape {tuple(targets.shape)}, but got {self.pos_weight}."
                )
            yes = weight * yes
        return per_example(targets * yes + (1 - targets) * no)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        return self._pick(self._log_probs(squeeze_to(outputs, targets)), targets, training=False)

    def training_log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return ``log_prob`` with yes weighed."""
        return self._pick(self._log_probs(squeeze_to(outputs, targets)), targets, training=True)

    def log_prob_of_mean(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        log_probs = mixture(self._log_probs(squeeze_to(outputs, targets))).unsqueeze(0)
        return self._pick(log_probs, targets, training=True).squeeze(0)

    def spec(self) -> dict[str, Any]:  # noqa: D102
        return {"name": self.name, "pos_weight": self.pos_weight}
