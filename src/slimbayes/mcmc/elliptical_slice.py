"""Elliptical slice sampling (Murray, Adams and MacKay 2010): no gradients, nothing to tune."""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from slimbayes._checks import check_count, check_number

__all__ = ["elliptical_slice"]

#: A bracket that has been shrunk so often has no width left.
SHRINKS = 200


def elliptical_slice(
    log_likelihood: Callable[[Tensor], Tensor | float],
    start: Tensor,
    *,
    prior_std: float | Tensor = 1.0,
    samples: int = 100,
    burn: int = 0,
    thin: int = 1,
    generator: Generator | None = None,
    after_step: Callable[[], object] | None = None,
) -> Tensor:
    r"""Sample from :math:`p(z) \propto L(z) \, N(z \mid 0, \mathrm{diag}(\sigma^2))`.

    A transition (Figure 2 of the paper) draws :math:`\nu` from the prior and a height :math:`u L(z)`, and looks on the
    ellipse :math:`z \cos\theta + \nu \sin\theta` for a point above it, in a bracket of angles that shrinks towards
    the present point until one is found.

    Args:
        log_likelihood: Gives :math:`\log L(z)`, the same each time, for z like ``start``.
        start: Where the chain begins, ``(dimensions,)``; its likelihood must not be zero.
        prior_std: Standard deviation(s) :math:`\sigma` of the prior: a number, or one for each dimension.
        samples: States to return.
        burn: Transitions to leave out first.
        thin: Transitions for each state that is returned.
        generator: Source of randomness.
        after_step: Called after each transition.

    Returns:
        ``(samples, dimensions)``.

    Example:
        >>> z = elliptical_slice(lambda z: -((z - 2) ** 2).sum() / 2, torch.zeros(1), samples=2000, burn=10,
        ...                      generator=torch.Generator().manual_seed(0))
        >>> bool((z.mean() - 1).abs() < 0.1), bool((z.var() - 0.5).abs() < 0.1)
        (True, True)
    """
    check_count("samples", samples, 1)
    check_count("burn", burn, 0)
    check_count("thin", thin, 1)
    if isinstance(prior_std, Tensor):
        for std in prior_std.flatten().tolist():
            check_number("prior_std", std, low=0.0)
    else:
        check_number("prior_std", prior_std, low=0.0)
    z = start.detach().clone()
    height = float(log_likelihood(z))
    if not math.isfinite(height):
        raise ValueError(
            f"Expected argument `start` to have a finite log-likelihood, but got {height}. Start where the likelihood "
            "is not zero."
        )

    def uniform() -> float:
        return float(torch.rand((), dtype=torch.float64, generator=generator, device=z.device))

    kept = []
    for transition in range(burn + samples * thin):
        nu = prior_std * torch.randn(z.shape, dtype=z.dtype, device=z.device, generator=generator)
        level = height + math.log(1 - uniform())
        angle = 2 * math.pi * uniform()
        low, high = angle - 2 * math.pi, angle
        for _ in range(SHRINKS):
            proposal = z * math.cos(angle) + nu * math.sin(angle)
            height = float(log_likelihood(proposal))
            if height > level:
                break
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = low + (high - low) * uniform()
        else:
            raise ValueError(
                f"Expected argument `log_likelihood` to give the same value for the same point, but found none above "
                f"{level:g} however near to it. Use all data in a fixed order, without dropout or augmentation."
            )
        z = proposal
        if transition >= burn and (transition - burn + 1) % thin == 0:
            kept.append(z)
        if after_step is not None:
            after_step()
    return torch.stack(kept)
