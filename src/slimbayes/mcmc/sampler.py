"""What all samplers share: the target, the prior, the noise and the walk over parameters."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from slimbayes._checks import check_count, check_number

__all__ = ["Sampler"]


class Sampler(Optimizer):
    r"""A torch optimiser whose parameters walk through a posterior instead of settling at its mode.

    The target is :math:`\exp(-U(\theta) / T)` with

    .. math::
        U(\theta) = N \, \ell(\theta) + \frac{N \omega}{2} |\theta|^2 + \frac{|\theta - \mu|^2}{2 \sigma^2}

    of which :math:`\ell` is the loss that was called ``backward()`` on, the **mean** over a batch's examples of
    :math:`-\log p(y_b \mid x_b, \theta)`, plus whatever the objective adds and divides by N (as ``sb.ELBO`` does
    with the KL). So :math:`U / N` has the gradient

    .. math::
        g = \nabla \ell + \omega \theta + \frac{\theta - \mu}{N \sigma^2}

    The step size is ``lr``, as for SGD on :math:`\ell` (Zhang et al. 2020; Wenzel et al. 2020): a rate that trains
    a network is a fair first guess here, whatever N is. It is the papers' step size on U times N, up to the factor
    that each sampler states.

    Every option can be set for each parameter group. A parameter without a gradient stays where it is. A group
    with ``temperature=0`` is optimised while the others are sampled.

    Args:
        params: Parameters or groups of them, such as ``model.param_groups()``.
        lr: Step size.
        num_data: Number N of training examples, of the whole training set.
        temperature: T; 1 for the posterior, 0 for its mode.
        prior_std: Standard deviation :math:`\sigma` of the normal prior that the sampler adds; None where the loss
            has the prior already, or for none.
        prior_mean: Its mean :math:`\mu`; 1 for the factors of a rank-1 model.
        weight_decay: :math:`\omega`, which is a normal prior of variance :math:`1 / (N \omega)`.
        generator: Source of the noise; None for torch's global one. It is no part of ``state_dict()``: a run that
            is to resume bit by bit stores its generator's state too.
        options: What one sampler has beyond the others.
    """

    #: Torch does not pickle it with the optimiser.
    generator: torch.Generator | None = None

    def __init__(
        self,
        params: Any,
        lr: float,
        num_data: int,
        temperature: float = 1.0,
        prior_std: float | None = None,
        prior_mean: float = 0.0,
        weight_decay: float = 0.0,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> None:
        defaults = {
            "lr": lr,
            "num_data": num_data,
            "temperature": temperature,
            "prior_std": prior_std,
            "prior_mean": prior_mean,
            "weight_decay": weight_decay,
            "noise": True,
            **options,
        }
        super().__init__(params, defaults)
        self.generator = generator

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group with options of its own."""
        self._check({**self.defaults, **param_group})
        super().add_param_group(param_group)

    def _check(self, group: dict[str, Any]) -> None:
        check_number("lr", group["lr"], 0.0, or_low=True, remedy="Use a rate that would suit SGD, such as 0.01.")
        check_count("num_data", group["num_data"], 1, "Give the number of training examples, not the batch size.")
        check_number("temperature", group["temperature"], 0.0, or_low=True, remedy="1 samples from the posterior.")
        if group["prior_std"] is not None:
            check_number("prior_std", group["prior_std"], 0.0, remedy="Use None for no prior.")
        check_number("prior_mean", group["prior_mean"])
        check_number("weight_decay", group["weight_decay"], 0.0, or_low=True)

    def switch_noise(self, on: bool) -> None:
        """Switch the noise of all groups, as in the exploration stages of a cyclical schedule; temperatures stay."""
        for group in self.param_groups:
            group["noise"] = on

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every parameter that has a gradient.

        Args:
            closure: Computes the loss again and returns it; None after ``backward()``.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group)
        return loss

    @abstractmethod
    def _move(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """Move one parameter by one step, in place."""

    def _gradient(self, parameter: Tensor, group: dict[str, Any]) -> Tensor:
        """Return g of the class's docstring."""
        gradient = parameter.grad
        assert gradient is not None
        if gradient.is_sparse:
            raise ValueError(
                "Expected argument `params` to have dense gradients, but got a sparse one: the noise and the prior "
                "move every row. Build the embedding with sparse=False."
            )
        if group["weight_decay"]:
            gradient = gradient.add(parameter, alpha=group["weight_decay"])
        if group["prior_std"] is not None:
            gradient = gradient.add(
                parameter - group["prior_mean"], alpha=1 / (group["num_data"] * group["prior_std"] ** 2)
            )
        return gradient

    def _add_noise(self, to: Tensor, group: dict[str, Any], variance: float, scale: Tensor | None = None) -> None:
        """Add normal noise of ``variance`` times the temperature, times the square of ``scale`` of each element."""
        variance *= group["temperature"]
        if group["noise"] and variance > 0:
            noise = self._normal(to)
            to.add_(noise if scale is None else noise.mul_(scale), alpha=math.sqrt(variance))

    def _normal(self, like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=self.generator, dtype=like.dtype, device=like.device)
