"""Likelihoods: how a network's outputs are read, in the objective and in predictions alike."""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes._checks import check_choice, check_number
from slimbayes.priors import inverse_softplus, softplus_scale

__all__ = ["Bernoulli", "Categorical", "Gaussian", "Likelihood", "get_likelihood", "mixture"]


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
        """Return the log-likelihood, ``(batch,)``, under the draws' averaged parameters (Eq. 12)."""

    def spec(self) -> dict[str, Any]:
        """Return JSON values from which ``get_likelihood`` rebuilds this likelihood."""
        return {"name": self.name}


def _per_example(log_likelihoods: Tensor) -> Tensor:
    """Sum ``(draws, batch, *)`` over everything that belongs to one example."""
    return log_likelihoods.flatten(2).sum(2) if log_likelihoods.dim() > 2 else log_likelihoods


class Categorical(Likelihood):
    r"""Classes from logits: :math:`\log p(y) = \log \text{softmax}(f)_y`, summed over an example's positions.

    Args:
        class_dim: Axis of the classes in ``(draws, batch, *)``; 2 for maps of shape (class, height, width).
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
        self.class_dim = class_dim
        self.ignore_index = ignore_index

    def class_log_probs(self, outputs: Tensor) -> Tensor:
        """Return log-probabilities with the classes last."""
        return outputs.movedim(self.class_dim, -1).log_softmax(-1)

    def _gather(self, log_probs: Tensor, targets: Tensor) -> Tensor:
        """Pick each target's entry of ``(*, batch, *, classes)``."""
        if targets.is_floating_point():
            targets = targets.movedim(self.class_dim + (0 if self.class_dim < 0 else -1), -1)
            return (log_probs * targets).sum(-1)
        self._check(log_probs, targets)
        keep = targets != self.ignore_index
        index = targets.where(keep, 0).long().expand(log_probs.shape[:-1]).unsqueeze(-1)
        return log_probs.gather(-1, index).squeeze(-1) * keep

    def _check(self, log_probs: Tensor, targets: Tensor) -> None:
        if targets.shape != log_probs.shape[-1 - targets.dim() : -1]:
            raise ValueError(
                f"Expected argument `targets` to have the outputs' batch shape "
                f"{tuple(log_probs.shape[-1 - max(targets.dim(), 1) : -1])}, but got {tuple(targets.shape)}. Outputs "
                "are (draws, batch, *, classes): pass model(x), and targets without the draws' axis."
            )
        if torch.compiler.is_compiling():
            return
        classes = log_probs.shape[-1]
        wrong = (targets != self.ignore_index) & ((targets < 0) | (targets >= classes))
        if wrong.any():
            raise ValueError(
                f"Expected argument `targets` to hold classes from 0 to {classes - 1} (or {self.ignore_index} for "
                f"positions to ignore), but got {int(targets[wrong][0])}. Check the labels, or give the network "
                "one output for each class."
            )

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        return _per_example(self._gather(self.class_log_probs(outputs), targets))

    def log_prob_of_mean(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        log_probs = mixture(self.class_log_probs(outputs))
        return _per_example(self._gather(log_probs, targets).unsqueeze(0)).squeeze(0)

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

    @staticmethod
    def _matched(outputs: Tensor, targets: Tensor) -> Tensor:
        outputs = _squeeze_to(outputs, targets)
        if not torch.compiler.is_compiling() and ((targets < 0) | (targets > 1)).any():
            wrong = targets[(targets < 0) | (targets > 1)][0].item()
            raise ValueError(
                f"Expected argument `targets` to lie between 0 and 1, but got {wrong}. The Bernoulli likelihood "
                "takes yes-or-no labels; for classes use likelihood='categorical'."
            )
        return outputs

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        outputs = self._matched(outputs, targets)
        targets = targets.to(outputs.dtype)
        return _per_example(targets * F.logsigmoid(outputs) + (1 - targets) * F.logsigmoid(-outputs))

    def log_prob_of_mean(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: D102
        outputs = self._matched(outputs, targets)
        targets = targets.to(outputs.dtype)
        yes, no = mixture(F.logsigmoid(outputs)), mixture(F.logsigmoid(-outputs))
        return _per_example((targets * yes + (1 - targets) * no).unsqueeze(0)).squeeze(0)


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
            if outputs.shape[-1] % 2:
                raise ValueError(
                    "Expected the network to have an even number of outputs with noise='predicted' (means, then "
                    f"rhos), but got {outputs.shape[-1]}. Give it twice as many outputs as targets."
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
        averaged = _normal_log_prob(mean.mean(0), std.square().mean(0).sqrt(), targets)
        return _per_example(averaged.unsqueeze(0)).squeeze(0)

    def spec(self) -> dict[str, Any]:  # noqa: D102
        return {"name": self.name, "noise": self.noise}


def _normal_log_prob(mean: Tensor, std: Tensor, value: Tensor) -> Tensor:
    return -0.5 * ((value - mean) / std).square() - std.log() - 0.5 * math.log(2 * math.pi)


def _squeeze_to(outputs: Tensor, targets: Tensor) -> Tensor:
    """Drop a last axis of one that the targets lack, and raise for any other difference of shape."""
    if outputs.dim() == targets.dim() + 2 and outputs.shape[-1] == 1:
        outputs = outputs.squeeze(-1)
    if outputs.shape[1:] != targets.shape:
        raise ValueError(
            f"Expected argument `targets` to have the shape {tuple(outputs.shape[1:])} of the outputs without their "
            f"draws' axis, but got {tuple(targets.shape)}. Reshape them: broadcasting would mix examples up."
        )
    return outputs


_LIKELIHOODS: dict[str, type[Likelihood]] = {kind.name: kind for kind in (Categorical, Bernoulli, Gaussian)}


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
    check_choice("likelihood", name, _LIKELIHOODS)
    return _LIKELIHOODS[name](**options)
