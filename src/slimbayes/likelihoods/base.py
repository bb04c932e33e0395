"""What a likelihood is: the one method that it must have, and those that a prediction may ask for."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from slimbayes.batching import batch_first, output_tensor

__all__ = [
    "Function",
    "Likelihood",
    "check_counts",
    "check_finite",
    "check_range",
    "check_shape",
    "known_within",
    "mixture",
    "per_example",
    "squeeze_to",
]

#: Bisections of a quantile.
BISECTIONS = 60

#: By the method that a likelihood needs for them: what it then has, and the figures of a prediction that ask for it.
FIGURES = {
    "class_log_probs": ("class probabilities", "probs, label, entropy"),
    "moments": ("mean or std", "mean, std"),
    "cdf": ("quantiles", "quantile(q), interval(level)"),
}


def mixture(log_likelihoods: Tensor) -> Tensor:
    r"""Return :math:`\log \frac1D \sum_d \exp \ell_d` over the first axis (Eq. 14), stably."""
    return log_likelihoods.logsumexp(0) - math.log(log_likelihoods.shape[0])


class Likelihood(nn.Module, ABC):
    """The distribution of a target given one draw's output. Its parameters and buffers become the model's.

    A likelihood of your own is a subclass with ``log_prob``. The other methods are there to be added where they
    make sense; without them, the figures of a prediction that need them are errors:

    ===================  ===============================================================================
    ``log_prob``         all that training needs, and ``p.log_likelihood(targets)``
    ``moments``          ``p.mean``, ``p.std``, ``p.aleatoric_std``, ``p.epistemic_std``
    ``cdf``              with ``moments``: ``p.quantile(q)``, ``p.interval(level)``
    ``class_log_probs``  ``p.probs``, ``p.label``, ``p.confidence``, ``p.entropy``, ...
    ``log_prob_of_mean``  ``objective="marginal_probs"``
    ``read``             outputs or targets that are no tensors
    ===================  ===============================================================================

    Attributes:
        name: What messages call it; of a subclass without one, the name of the class.
        whole: Whether targets are whole numbers, so that quantiles are.

    Example:
        >>> import slimbayes as sb
        >>> class Exponential(sb.Likelihood):  # waiting times; the network returns the logarithm of their mean
        ...     def log_prob(self, outputs, targets):
        ...         log_mean = outputs.squeeze(-1)  # (draws, batch)
        ...         return -log_mean - targets / log_mean.exp()
        ...     def moments(self, outputs):
        ...         return outputs.exp(), outputs.exp()
        ...     def cdf(self, outputs, values):
        ...         return -torch.expm1(-values / outputs.exp())
        >>> model, x, y = sb.rank1(nn.Linear(2, 1)), torch.ones(3, 2), torch.ones(3)
        >>> loss = sb.ELBO(model, num_data=3, likelihood=Exponential())(model(x), y)
        >>> p = model.predict(x)
        >>> bool((p.std > p.epistemic_std).all()), p.interval(0.9)[0].shape, p.log_likelihood(y).shape
        (True, torch.Size([3, 1]), torch.Size([3]))
    """

    name: ClassVar[str]
    whole: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" not in vars(cls):
            cls.name = cls.__name__

    @abstractmethod
    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the log-likelihood of each example under each draw.

        Shape:
            - ``outputs``: ``(draws, batch, *)``. ``targets``: ``(batch, *)``. Output: ``(draws, batch)``.
        """

    def training_log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return what the objective maximises: ``log_prob``, unless examples are weighed or labels smoothed."""
        return self.log_prob(outputs, targets)

    def log_prob_of_mean(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return what the objective maximises, ``(batch,)``, under the draws' averaged parameters (Eq. 12).

        The parameters are probabilities, or for a Gaussian the mean and the variance.
        """
        raise ValueError(
            f"The {self.name} likelihood has no parameters that can be averaged, as objective='marginal_probs' does. "
            "Use another objective, or write its method `log_prob_of_mean`."
        )

    def class_log_probs(self, outputs: Tensor) -> Tensor:
        """Return each draw's log-probabilities of the classes, ``(draws, batch, *, classes)``."""
        raise self._without("class_log_probs")

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and the standard deviation of the target under each draw, ``(draws, batch, *)``."""
        raise self._without("moments")

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """Return each draw's probability of at most ``values``, which broadcast to ``(draws, batch, *)``."""
        raise self._without("cdf")

    def quantile(self, outputs: Tensor, q: float) -> Tensor:
        r"""Return the mixture's ``q``-quantile, by bisection of the draws' mean ``cdf``.

        It begins between the bounds of Cantelli's inequality, which hold for any distribution:
        :math:`\mu - \sigma \sqrt{(1 - q)/q}` and :math:`\mu + \sigma \sqrt{q/(1 - q)}`.
        """
        mean, std = self.moments(outputs)
        low = (mean - math.sqrt((1 - q) / q) * std).amin(0)
        high = (mean + math.sqrt(q / (1 - q)) * std).amax(0)
        if self.whole:
            low, high = low.floor() - 1, high.ceil()
        for _ in range(BISECTIONS):
            middle = ((low + high) / 2).floor() if self.whole else (low + high) / 2
            below = self.cdf(outputs, middle).mean(0) < q
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
            if self.whole and bool((high - low <= 1).all()):
                break
        return high if self.whole else (low + high) / 2

    def read(self, outputs: Any, targets: Any, batch_dim: int) -> tuple[Any, Any]:
        """Return what ``log_prob`` is given: the outputs, or their ``logits``, and the targets, batch first."""
        if not isinstance(targets, Tensor):
            raise TypeError(
                f"Expected argument `targets` to be a tensor, but got {type(targets).__name__}. "
                "Use torch.as_tensor(targets)."
            )
        return batch_first(output_tensor(outputs), targets, batch_dim)

    def outputs_for(self, targets: int) -> int:
        """Return how many numbers the network must return for so many targets, or classes, of an example."""
        return targets

    def spec(self) -> dict[str, Any]:
        """Return JSON values from which ``get_likelihood`` rebuilds this likelihood."""
        return {"name": self.name}

    def offers(self, method: str) -> bool:
        """Tell whether a method that is not required is there.

        Example:
            >>> import slimbayes as sb
            >>> sb.Categorical().offers("moments"), sb.Gaussian().offers("moments")
            (False, True)
        """
        return getattr(type(self), method) is not getattr(Likelihood, method)

    def _without(self, method: str) -> ValueError:
        offered = [figures for other, (_, figures) in FIGURES.items() if self.offers(other)]
        if self.offers("quantile"):
            offered.append(FIGURES["cdf"][1])
        return ValueError(
            f"The {self.name} likelihood has no {FIGURES[method][0]}. Ask for "
            f"{', '.join([*offered, 'log_likelihood(targets)'])} or draws, or predict with another likelihood, such as "
            f"a subclass of sb.Likelihood with a method `{method}`."
        )


class Function(Likelihood):
    """A function ``(outputs, targets) -> log-likelihood``, ``(draws, batch)``; it sees what the network returns.

    Args:
        function: The function; None for one that a file could only name.
        label: Its name.
    """

    name = "function"

    def __init__(self, function: Callable[[Any, Any], Tensor] | None, label: str | None = None) -> None:
        super().__init__()
        self.label = label or getattr(function, "__name__", type(function).__name__)
        # In a tuple, as the parameters of a function that is a module are not the model's.
        self._held = (function,)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Function":
        return Function(self.function, self.label)  # a function may hold on to anything, the model itself too

    @property
    def function(self) -> Callable[[Any, Any], Tensor] | None:
        """The function."""
        return self._held[0]

    def log_prob(self, outputs: Any, targets: Any) -> Tensor:  # noqa: D102
        if self.function is None:
            raise ValueError(
                f"The model was trained with a function as its likelihood, {self.label!r}, which no file holds. Give "
                f"it: sb.ELBO(model, num_data, likelihood={self.label}), or model.predict(x, likelihood={self.label})."
            )
        return self.function(outputs, targets)

    def read(self, outputs: Any, targets: Any, batch_dim: int) -> tuple[Any, Any]:  # noqa: D102
        return outputs, targets

    def spec(self) -> dict[str, Any]:  # noqa: D102
        return {"name": self.name, "function": self.label}

    def _without(self, method: str) -> ValueError:
        return ValueError(
            f"The likelihood of this model is a function, {self.label!r}, of which no {FIGURES[method][0]} are known. "
            "Ask for log_likelihood(targets) or draws (their mean is p.draws.mean(0)), use a likelihood with a name, "
            f"or subclass sb.Likelihood with a method `{method}`."
        )


# ---------------------------------------------------------------------- shapes and values


def per_example(log_likelihoods: Tensor) -> Tensor:
    """Sum ``(draws, batch, *)`` over everything that belongs to one example."""
    return log_likelihoods.flatten(2).sum(2) if log_likelihoods.dim() > 2 else log_likelihoods


def squeeze_to(outputs: Tensor, targets: Tensor) -> Tensor:
    """Drop a last axis of one that the targets lack, and raise for any other difference of shape."""
    if outputs.dim() == targets.dim() + 2 and outputs.shape[-1] == 1:
        outputs = outputs.squeeze(-1)
    check_shape(targets, outputs.shape[1:], "Reshape them.")
    return outputs


def check_shape(targets: Tensor, shape: torch.Size, remedy: str) -> None:
    """Raise unless the targets have just the shape of the outputs: broadcasting would mix examples up."""
    if targets.shape != shape:
        raise ValueError(
            f"Expected argument `targets` to have the shape {tuple(shape)} of the outputs without their draws' axis, "
            f"but got {tuple(targets.shape)}. {remedy}"
        )


def known_within(targets: Tensor, low: float, high: float) -> bool:
    """Tell whether all targets are known to lie from ``low`` to ``high``; a value that is being traced is not known."""
    return not torch.compiler.is_compiling() and bool(_within(targets, low, high).all())


def _within(targets: Tensor, low: float, high: float) -> Tensor:
    return (targets >= low) & (targets <= high)  # and so NaN is wrong


def check_range(targets: Tensor, low: float, high: float, remedy: str) -> None:
    """Raise unless all targets lie from ``low`` to ``high``."""
    if not (torch.compiler.is_compiling() or known_within(targets, low, high)):
        wrong = targets[~_within(targets, low, high)][0].item()
        raise ValueError(f"Expected argument `targets` to lie from {low} to {high}, but got {wrong}. {remedy}")


def check_finite(targets: Tensor) -> None:
    """Raise unless all targets are finite: the loss, and with it the weights, would not be either."""
    if torch.compiler.is_compiling() or targets.isfinite().all():
        return
    wrong = targets[~targets.isfinite()]
    raise ValueError(
        f"Expected argument `targets` to be finite, but {len(wrong)} of them are not, the first {wrong[0].item()}. "
        "Leave out examples without a target."
    )


def check_counts(targets: Tensor) -> None:
    """Raise unless all targets are 0, 1, 2, ..."""
    if torch.compiler.is_compiling():
        return
    wrong = ~((targets >= 0) & (targets < math.inf)) | (targets != targets.round())
    if wrong.any():
        raise ValueError(
            f"Expected argument `targets` to be counts 0, 1, 2, ..., but got {targets[wrong][0].item()}. Give them as "
            "they were counted, not standardised."
        )
