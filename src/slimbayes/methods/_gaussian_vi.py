"""A Gaussian fitted to an unnormalised density of few dimensions, by variational inference."""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from slimbayes._checks import check_choice, check_count, check_number


@torch.enable_grad()
def fit_gaussian(
    log_density: Callable[[Tensor], Tensor],
    size: int,
    *,
    start_std: float = 1.0,
    covariance: str = "full",
    steps: int = 1000,
    lr: float = 0.1,
    draws: int = 2,
    generator: Generator | None = None,
    after_step: Callable[[], object] | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Return mean and covariance factor of the Gaussian q that minimises :math:`KL(q \| p)`.

    Draws are :math:`z = \mu + L \epsilon`; the gradient is that of :math:`\log q(z) - \log p(z)` through z alone
    ("sticking the landing", Roeder et al. 2017), whose variance vanishes where q is p. Adam, with a learning rate that
    falls to zero along a cosine.

    Args:
        log_density: Gives :math:`\log p(z)` up to a constant, for z of shape ``(size,)``; it may be an unbiased
            estimate, such as from a minibatch.
        size: Dimensions.
        start_std: Scale to expect. The fit starts at zero, a tenth of it wide.
        covariance: ``"full"`` or ``"diagonal"``.
        steps: Of the optimiser.
        lr: Learning rate in units of ``start_std``.
        draws: Of z in each step, in antithetic pairs where even.
        generator: Source of randomness, on the CPU.
        after_step: Called after each step.

    Returns:
        Mean ``(size,)`` and lower triangular factor L ``(size, size)``, both of float64: covariance
        :math:`L L^\top`.

    Example:
        >>> mean, factor = fit_gaussian(lambda z: -(z - 1).square().sum() / 2, 2)
        >>> ones, eye = torch.ones(2).double(), torch.eye(2).double()
        >>> torch.allclose(mean, ones, atol=1e-3), torch.allclose(factor, eye, atol=0.01)
        (True, True)
    """
    check_choice("covariance", covariance, ("full", "diagonal"))
    check_number("lr", lr, low=0.0)
    for name, value in (("size", size), ("steps", steps), ("draws", draws)):
        check_count(name, value, 1)
    mean = torch.zeros(size, dtype=torch.float64, requires_grad=True)
    log_std = torch.full((size,), math.log(0.1), dtype=torch.float64, requires_grad=True)
    mixing = torch.zeros(size, size, dtype=torch.float64, requires_grad=True)

    def factor() -> Tensor:
        return start_std * log_std.exp().unsqueeze(-1) * (torch.eye(size, dtype=torch.float64) + mixing.tril(-1))

    # A short memory: before the fit is narrow, gradients are larger by many orders of magnitude.
    own = [mean, log_std, mixing] if covariance == "full" else [mean, log_std]
    optimiser = torch.optim.Adam(own, lr=lr, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        optimiser.zero_grad()
        noise = torch.randn(-(-draws // 2), size, dtype=torch.float64, generator=generator)
        for epsilon in torch.cat([noise, -noise])[:draws]:
            lower = factor()
            z = start_std * mean + lower @ epsilon
            held = lower.detach()
            back = torch.linalg.solve_triangular(held, (z - start_std * mean.detach()).unsqueeze(-1), upper=False)
            log_q = -back.square().sum() / 2  # the rest does not depend on z
            # Not backward(), which would leave gradients in parameters that the density has.
            log_p = log_density(z)
            if not log_p.isfinite():
                raise ValueError(
                    f"Expected argument `log_density` to be finite where the fit looks, but got {log_p.item()} at "
                    f"{z.tolist()}. Check the data for NaN, or lower `lr`."
                )
            gradients = torch.autograd.grad((log_q - log_p) / draws, own)
            for parameter, gradient in zip(own, gradients, strict=True):
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        optimiser.step()
        schedule.step()
        if after_step is not None:
            after_step()
    with torch.no_grad():
        return start_std * mean.detach(), factor()
