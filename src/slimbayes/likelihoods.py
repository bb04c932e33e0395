"""Likelihoods: how a network's outputs are read, in the objective and in predictions alike."""

import math
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes._checks import check_choice, check_number
from slimbayes.families import inverse_softplus, softplus_scale

__all__ = ["LIKELIHOODS", "Bernoulli", "Categorical", "Gaussian", "Likelihood", "get_likelihood", "mixture"]

#: Classes from which on torch's CPU kernel takes several of a row at once. Below, it is several rows that must be.
LONG_ROWS = 16
#: Of fewer, calls of operations take longer than what they compute.
FEW_LOGITS = 2**15


def mixture(log_likelihoods: Tensor) -> Tensor:
    r"""Return :math:`\log \frac1D \sum_d \exp \ell_d` over the first axis (Eq. 14), stably."""
    return log_likelihoods.logsumexp(0) - math.log(log_likelihoods.shape[0])


class Likelihood(nn.Module, ABC):
    """The law of a target given one draw's output; some have parameters that train with the model."""

    name: ClassVar[str]

    @abstractmethod
    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the log-likelihood of each example under each draw.

        Shape:
            - ``outputs``: ``(draws, batch, *)``. ``targets``: ``(batch, *)``. Output: ``(draws, batch)``.
        """

    @abstractmethod
    def log_prob_of_mean(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the log-likelihood, ``(batch,)``, under the draws' averaged parameters (Eq. 12).

        The parameters are probabilities, or for a Gaussian the mean and the variance.
        """

    def spec(self) -> dict[str, Any]:
        """Return JSON values from which ``get_likelihood`` rebuilds this likelihood."""
        return {"name": self.name}


def _per_example(log_likelihoods: Tensor) -> Tensor:
    """Sum ``(draws, batch, *)`` over everything that belongs to one example."""
    return log_likelihoods.flatten(2).sum(2) if log_likelihoods.dim() > 2 else log_likelihoods


def _check_shape(targets: Tensor, shape: torch.Size, remedy: str) -> None:
    """Raise unless the targets have just the shape of the outputs: broadcasting would mix examples up."""
    if targets.shape != shape:
        raise ValueError(
            f"Expected argument `targets` to have the shape {tuple(shape)} of the outputs without their draws' axis, "
            f"but got {tuple(targets.shape)}. {remedy}"
        )


def _known_within(targets: Tensor, low: int, high: int) -> bool:
    """Tell whether all targets are known to lie from ``low`` to ``high``; a value that is being traced is not known."""
    return not torch.compiler.is_compiling() and bool(_within(targets, low, high).all())


def _within(targets: Tensor, low: int, high: int) -> Tensor:
    return (targets >= low) & (targets <= high)  # and so NaN is wrong


def _check_range(targets: Tensor, low: int, high: int, remedy: str) -> None:
    if not (torch.compiler.is_compiling() or _known_within(targets, low, high)):
        wrong = targets[~_within(targets, low, high)][0].item()
        raise ValueError(f"Expected argument `targets` to lie from {low} to {high}, but got {wrong}. {remedy}")


class Categorical(Likelihood):
    r"""Classes from logits: :math:`\log p(y) = \log \text{softmax}(f)_y`, summed over an example's positions.

    Args:
        class_dim: Axis of the classes in ``(draws, batch, *)``: the last, or 2 for maps of shape
            (class, height, width).
        ignore_index: Target of positions that do not count.

    Shape:
        - Outputs: ``(draws, batch, *, classes)``. Targets: ``(batch, *)`` of class numbers, or
          ``(batch, *, classes)`` of probabilities.

    Example:
        >>> Categorical().log_prob(torch.zeros(4, 2, 3), torch.tensor([0, 2]))[0]
        tensor([-1.0986, -1.0986])
    """

    name = "categorical"

    def __init__(self, class_dim: int = -1, ignore_index: int = -100) -> None:
        super().__init__()
        if class_dim in (0, 1):
            raise ValueError(
                f"Expected argument `class_dim` to be an axis of (draws, batch, *, classes) from 2 on, or negative, "
                f"but got {class_dim}. The first two are the draws and the batch."
            )
        self.class_dim = class_dim
        self.ignore_index = ignore_index

    def class_log_probs(self, outputs: Tensor) -> Tensor:
        """Return log-probabilities with the classes last."""
        return self._log_probs(outputs).contiguous()

    def _log_probs(self, outputs: Tensor) -> Tensor:
        """Return log-probabilities with the classes last, in whatever layout is quick to make."""
        if outputs.dim() < 3:
            raise ValueError(
                f"Expected outputs of shape (draws, batch, *, classes), but got {tuple(outputs.shape)}. Pass model(x); "
                "one logit for yes or no is likelihood='bernoulli'."
            )
        if outputs.device.type == "cpu" and outputs.shape[self.class_dim] < LONG_ROWS:
            return outputs.movedim(self.class_dim, 0).contiguous().log_softmax(0).movedim(0, -1)
        return outputs.movedim(self.class_dim, -1).log_softmax(-1)

    def _pick(self, log_probs: Tensor, targets: Tensor) -> Tensor:
        """Return the log-likelihood, ``(draws, batch)``, from log-probabilities with the classes last."""
        if targets.is_floating_point():
            class_dim = self.class_dim if self.class_dim < 0 else self.class_dim - 1
            shape = log_probs[0].movedim(-1, class_dim).shape
            _check_shape(targets, shape, "Floating-point targets are probabilities; class numbers must be integers.")
            _check_range(targets, 0, 1, "They are probabilities of the classes.")
            return _per_example((log_probs * targets.movedim(class_dim, -1)).sum(-1))
        _check_shape(
            targets,
            log_probs.shape[1:-1],
            "Outputs are (draws, batch, *, classes): pass model(x). One-hot targets: .float().",
        )
        classes = log_probs.shape[-1]
        keep: Tensor | None = None
        if 0 <= self.ignore_index < classes or not _known_within(targets, 0, classes - 1):
            keep = targets != self.ignore_index
            targets = targets.where(keep, 0)
            remedy = (
                f"Check the labels, or give the network an output for each class. To ignore some: {self.ignore_index}."
            )
            _check_range(targets, 0, classes - 1, remedy)
        index = targets.long().expand(log_probs.shape[:-1]).unsqueeze(-1)
        picked = log_probs.gather(-1, index).squeeze(-1)
        return _per_example(picked if keep is None else picked.where(keep, 0.0))

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        return self._pick(self._log_probs(outputs), targets)

    def mean_loss(self, outputs: Tensor, targets: Any) -> Tensor | None:
        """Return what ``-log_prob(outputs, targets).mean()`` is, where torch has one operation for it, else None.

        That is one class for each example, on a device that notices classes that do not exist, and few logits: for
        many, ``log_prob`` has a better layout.

        Example:
            >>> Categorical().mean_loss(torch.zeros(4, 2, 3), torch.tensor([0, 2]))
            tensor(1.0986)
        """
        known = outputs.device.type == "cpu" and outputs.dtype in (torch.float32, torch.float64)
        plain = outputs.dim() == 3 and self.class_dim in (-1, 2) and 0 < outputs.numel() < FEW_LOGITS
        fits = isinstance(targets, Tensor) and targets.dtype == torch.int64 and targets.shape == outputs.shape[1:2]
        if not (known and plain and fits) or torch.compiler.is_compiling():
            return None
        draws, batch, classes = outputs.shape
        repeated = targets if draws == 1 else torch.cat([targets] * draws)  # in less time than `repeat`
        with suppress(IndexError):  # a class that does not exist, of which log_prob tells
            losses = F.cross_entropy(
                outputs.reshape(-1, classes), repeated, ignore_index=self.ignore_index, reduction="sum"
            )
            return losses / (draws * batch)
        return None

    def log_prob_of_mean(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        return self._pick(mixture(self._log_probs(outputs)).unsqueeze(0), targets).squeeze(0)

    def spec(self) -> dict[str, Any]:  # noqa: D102
        return {"name": self.name, "class_dim": self.class_dim, "ignore_index": self.ignore_index}


class Bernoulli(Likelihood):
    """Yes or no from one logit, or several labels from one logit each.

    Shape:
        - Outputs: ``(draws, batch, *)`` or ``(draws, batch, *, 1)``. Targets: ``(batch, *)`` from 0 to 1.

    Example:
        >>> Bernoulli().log_prob(torch.zeros(4, 2, 1), torch.tensor([0, 1]))[0]
        tensor([-0.6931, -0.6931])
    """

    name = "bernoulli"

    def class_log_probs(self, outputs: Tensor) -> Tensor:
        """Return log-probabilities of no and yes, last."""
        return torch.stack([F.logsigmoid(-outputs), F.logsigmoid(outputs)], -1)

    def _pick(self, log_probs: Tensor, targets: Tensor) -> Tensor:
        """Return the log-likelihood, ``(draws, batch)``, from log-probabilities of no and yes."""
        no, yes = (_squeeze_to(part, targets) for part in log_probs.unbind(-1))
        _check_range(targets, 0, 1, "They are yes-or-no labels; for classes use likelihood='categorical'.")
        targets = targets.to(yes.dtype)
        return _per_example(targets * yes + (1 - targets) * no)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        return self._pick(self.class_log_probs(outputs), targets)

    def log_prob_of_mean(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        return self._pick(mixture(self.class_log_probs(outputs)).unsqueeze(0), targets).squeeze(0)


class Gaussian(Likelihood):
    r"""Real targets: :math:`N(y \mid \mu, \sigma^2)`, summed over an example's dimensions.

    Args:
        noise: ``"learned"``: one :math:`\sigma` for all, trained with the model. ``"predicted"``: the network's
            last axis holds the means, then as many rhos, :math:`\sigma = \text{softplus}(\rho) + 10^{-7}`.
            A number: :math:`\sigma` itself, fixed.
        initial: Where a learned :math:`\sigma` starts.

    Shape:
        - Outputs: ``(draws, batch, *)``, a last axis of one allowed beyond the targets';
          with predicted noise ``(draws, batch, 2 * n)``. Targets: ``(batch, *)``.

    Example:
        >>> Gaussian(noise=1.0).log_prob(torch.zeros(4, 2, 1), torch.tensor([0.0, 1.0]))[0]
        tensor([-0.9189, -1.4189])
    """

    name = "gaussian"

    def __init__(self, noise: str | float = "learned", initial: float = 1.0) -> None:
        super().__init__()
        if isinstance(noise, str):
            check_choice("noise", noise, ("learned", "predicted"))
        else:
            check_number("noise", noise, low=0.0)
        check_number("initial", initial, low=0.0)
        self.noise = noise
        self.rho = nn.Parameter(torch.tensor(inverse_softplus(initial))) if noise == "learned" else None

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return each draw's mean and standard deviation."""
        if self.noise == "predicted":
            if outputs.dim() < 3 or outputs.shape[-1] % 2:
                raise ValueError(
                    "Expected the network to have an even number of outputs with noise='predicted' (means, then "
                    f"rhos), but got shape {tuple(outputs.shape)}. Give it twice as many outputs as targets."
                )
            mean, rho = outputs.chunk(2, -1)
            return mean, softplus_scale(rho)
        std = outputs.new_tensor(self.noise) if self.rho is None else softplus_scale(self.rho).to(outputs.dtype)
        return outputs, std.expand_as(outputs)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        mean, std = (_squeeze_to(part, targets) for part in self.moments(outputs))
        return _per_example(_normal_log_prob(mean, std, targets))

    def log_prob_of_mean(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        mean, std = (_squeeze_to(part, targets) for part in self.moments(outputs))
        mean, variance = mean.mean(0, keepdim=True), std.square().mean(0, keepdim=True)
        return _per_example(_normal_log_prob(mean, variance.sqrt(), targets)).squeeze(0)

    def spec(self) -> dict[str, Any]:  # noqa: D102
        return {"name": self.name, "noise": self.noise}


def _normal_log_prob(mean: Tensor, std: Tensor, value: Tensor) -> Tensor:
    return -0.5 * ((value - mean) / std).square() - std.log() - 0.5 * math.log(2 * math.pi)


def _squeeze_to(outputs: Tensor, targets: Tensor) -> Tensor:
    """Drop a last axis of one that the targets lack, and raise for any other difference of shape."""
    if outputs.dim() == targets.dim() + 2 and outputs.shape[-1] == 1:
        outputs = outputs.squeeze(-1)
    _check_shape(targets, outputs.shape[1:], "Reshape them.")
    return outputs


LIKELIHOODS: dict[str, type[Likelihood]] = {kind.name: kind for kind in (Categorical, Bernoulli, Gaussian)}


def get_likelihood(spec: str | dict[str, Any] | Likelihood) -> Likelihood:
    """Return the likelihood that a name, a JSON spec or a likelihood stands for.

    Example:
        >>> get_likelihood("gaussian").noise
        'learned'
    """
    if isinstance(spec, Likelihood):
        return spec
    options = dict(spec) if isinstance(spec, dict) else {"name": spec}
    name = options.pop("name")
    check_choice("likelihood", name, LIKELIHOODS)
    return LIKELIHOODS[name](**options)
