"""The samplers: SGLD, its RMSprop-preconditioned form, and SGHMC."""

import math
from typing import Any

import torch
from torch import Tensor

from slimbayes._checks import check_number
from slimbayes.mcmc.sampler import Sampler

__all__ = ["PSGLD", "SGHMC", "SGLD"]


class SGLD(Sampler):
    r"""Stochastic gradient Langevin dynamics.

    .. math::
        \theta \leftarrow \theta - \mathrm{lr} \, g + \sqrt{2 \, \mathrm{lr} \, T / N} \; \xi,
        \qquad \xi \sim \mathcal N(0, I)

    which is Welling & Teh 2011, Eq. 4, with their :math:`\epsilon_t = 2 \, \mathrm{lr} / N` and a temperature; g, T
    and N are those of ``Sampler``. At ``temperature=0`` it is SGD.

    The step is finite and there is no Metropolis test, so draws are a little too wide. With full gradients
    of a quadratic :math:`U / N` of Hessian A the stationary covariance is exactly

    .. math::
        \Sigma = \frac{T}{N} A^{-1} (I - \tfrac12 \mathrm{lr} A)^{-1}

    The noise of minibatch gradients, of covariance C, widens it further; by about :math:`\mathrm{lr} \, C N / (2T)`
    of itself.

    Args:
        params: See ``Sampler``, here and for the rest.
        lr: Step size, well below 2 over the largest eigenvalue of A.
        num_data: N.
        temperature: T.
        prior_std: Of the normal prior.
        prior_mean: Of the normal prior.
        weight_decay: The same prior in the words of SGD.
        generator: Source of the noise.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> theta = torch.nn.Parameter(torch.zeros(2000))  # 2000 chains; each target is N(3, 0.1^2)
        >>> sampler = SGLD([theta], lr=0.05, num_data=100)
        >>> for _ in range(100):
        ...     sampler.zero_grad()
        ...     (0.5 * (theta - 3) ** 2).sum().backward()
        ...     sampler.step()
        >>> print(f"{theta.mean():.2f} {theta.std():.2f}")
        2.98 0.10
    """

    def _move(self, parameter: Tensor, group: dict[str, Any]) -> None:
        parameter.add_(self._gradient(parameter, group), alpha=-group["lr"])
        self._add_noise(parameter, group, 2 * group["lr"] / group["num_data"])


class PSGLD(Sampler):
    r"""SGLD preconditioned by RMSprop: weights with small gradients take large steps.

    .. math::
        V &\leftarrow \alpha V + (1 - \alpha) \, \nabla \ell \odot \nabla \ell \\
        G &= \mathrm{diag}(1 / (\lambda + \sqrt V)) \\
        \theta &\leftarrow \theta - \mathrm{lr} \, G g + \sqrt{2 \, \mathrm{lr} \, T / N} \; G^{1/2} \xi

    which is Li et al. 2016, Algorithm 1, with their :math:`\epsilon_t = 2 \, \mathrm{lr} / N`. As they do, it leaves
    out :math:`\Gamma`, the term for the change of G with :math:`\theta`: the bias that stays vanishes as
    :math:`\alpha \to 1`. V starts, before the first step, at the mean over the whole parameter of
    :math:`\nabla \ell \odot \nabla \ell`. (With them it starts at 0, so that a weight whose first gradient is small by
    chance is thrown far out of the posterior.) At ``temperature=0`` and without a prior it is
    ``torch.optim.RMSprop`` with that start.

    Args:
        params: See ``Sampler``, here and for the rest.
        lr: Step size.
        num_data: N.
        decay: :math:`\alpha`.
        eps: :math:`\lambda`, which bounds the step of a weight without gradients.
        temperature: T.
        prior_std: Of the normal prior.
        prior_mean: Of the normal prior.
        weight_decay: The same prior in the words of SGD.
        generator: Source of the noise.

    Example:
        >>> layer = torch.nn.Linear(3, 1)
        >>> sampler = PSGLD(layer.parameters(), lr=1e-3, num_data=100, prior_std=1.0)
        >>> layer(torch.ones(5, 3)).square().mean().backward()
        >>> sampler.step()
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        num_data: int,
        decay: float = 0.99,
        eps: float = 1e-5,
        temperature: float = 1.0,
        prior_std: float | None = None,
        prior_mean: float = 0.0,
        weight_decay: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            params, lr, num_data, temperature, prior_std, prior_mean, weight_decay, generator, decay=decay, eps=eps
        )

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        check_number("decay", group["decay"], 0.0, 1.0, "It is the memory of the squared gradients, such as 0.99.")
        check_number("eps", group["eps"], 0.0, remedy="It bounds the step where gradients vanish, such as 1e-5.")

    def _move(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        gradient, square = self._gradient(parameter, group), parameter.grad.square()  # type: ignore[union-attr]
        if not state:
            state["square"] = square.mean().expand_as(square).clone()
        state["square"].mul_(group["decay"]).add_(square, alpha=1 - group["decay"])
        root = state["square"].sqrt().add_(group["eps"])
        parameter.addcdiv_(gradient, root, value=-group["lr"])
        self._add_noise(parameter, group, 2 * group["lr"] / group["num_data"], root.rsqrt())


class SGHMC(Sampler):
    r"""Stochastic gradient Hamiltonian Monte Carlo, by symplectic Euler steps with mass 1.

    .. math::
        m &\leftarrow (1 - \alpha) \, m - \sqrt{\mathrm{lr} N} \, g + \sqrt{2 \alpha T} \; \xi,
        \qquad \xi \sim \mathcal N(0, I) \\
        \theta &\leftarrow \theta + \sqrt{\mathrm{lr} / N} \; m

    which is Wenzel et al. 2020, Algorithm 1, with :math:`h = \sqrt{\mathrm{lr} / N}` and :math:`h \gamma = \alpha`.
    In :math:`v = h m` it is Chen et al. 2014, Eq. 15 (the form of their Eq. 13 that has the constants of SGD with
    momentum), with :math:`\eta = \mathrm{lr} / N` and :math:`\hat\beta = 0`. The distribution of m, N(0, T) under weak
    friction, is the same at any small step size, so that ``lr`` may follow a schedule. With a
    constant ``lr`` and ``temperature=0`` it is SGD with momentum :math:`1 - \alpha`; with ``momentum_decay=1`` it is
    SGLD.

    With full gradients of a quadratic :math:`U / N` of Hessian A the stationary covariance is exactly

    .. math::
        \Sigma = \frac{T}{N} A^{-1} \left(I - \frac{\mathrm{lr} A}{2 (2 - \alpha)}\right)^{-1}

    so that a strong friction biases nothing as long as the step is small. One step is worth
    about :math:`1 / \alpha` steps of SGLD with the same ``lr``.

    Args:
        params: See ``Sampler``, here and for the rest.
        lr: Step size.
        num_data: N.
        momentum_decay: :math:`\alpha`, above 0 and at most 1; one minus the momentum of SGD.
        temperature: T.
        prior_std: Of the normal prior.
        prior_mean: Of the normal prior.
        weight_decay: The same prior in the words of SGD.
        generator: Source of the noise.

    Example:
        >>> layer = torch.nn.Linear(3, 1)
        >>> sampler = SGHMC(layer.parameters(), lr=0.01, num_data=100, prior_std=1.0)
        >>> layer(torch.ones(5, 3)).square().mean().backward()
        >>> sampler.step()
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        num_data: int,
        momentum_decay: float = 0.1,
        temperature: float = 1.0,
        prior_std: float | None = None,
        prior_mean: float = 0.0,
        weight_decay: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        shared = (lr, num_data, temperature, prior_std, prior_mean, weight_decay, generator)
        super().__init__(params, *shared, momentum_decay=momentum_decay)

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        remedy = "Use one minus the momentum that would suit SGD, such as 0.1; at most 1."
        check_number("momentum_decay", group["momentum_decay"], 0.0, math.nextafter(1.0, 2.0), remedy)

    def _move(self, parameter: Tensor, group: dict[str, Any]) -> None:
        momentum = self._momentum(parameter)
        lr, num_data, decay = group["lr"], group["num_data"], group["momentum_decay"]
        momentum.mul_(1 - decay).add_(self._gradient(parameter, group), alpha=-math.sqrt(lr * num_data))
        self._add_noise(momentum, group, 2 * decay)
        parameter.add_(momentum, alpha=math.sqrt(lr / num_data))

    def _momentum(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        return state["momentum"]

    @torch.no_grad()
    def resample_momentum(self) -> None:
        """Draw all momenta anew from N(0, T), as at the start of a cycle; they start at 0.

        Seldom is harmless. Before every step it would be wrong: the momentum of a symplectic Euler step belongs
        half a step away from its position.
        """
        for group in self.param_groups:
            for parameter in group["params"]:
                self._add_noise(self._momentum(parameter).zero_(), group, 1.0)
