"""How much of what a posterior knows comes from the prior, and how much from the data."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from slimbayes.analysis.matrices import as_matrix, layer_name, posterior_parts
from slimbayes.families import LogNormal, Normal
from slimbayes.layers.gaussian import GaussianWeight
from slimbayes.layers.rank1 import Factor
from slimbayes.model import BayesianModel

__all__ = ["PriorShare", "prior_share"]


class PriorShare(NamedTuple):
    """The prior's share of the precision of one layer's weights, or of one factor.

    Attributes:
        mean: The mean over the elements; the data's is 1 - mean.
        elements: One share for each element, in the form of ``posterior_matrices``; not a number where a weight is
            not random, in the padding row of an embedding.
    """

    mean: float
    elements: np.ndarray


def prior_share(model: BayesianModel) -> dict[str, PriorShare]:
    r"""Return, for each layer's weights or each factor, the share of the posterior's precision that is the prior's.

    .. math::
        \frac{1}{\sigma_q^2} = \frac{1}{\sigma_p^2} + \text{precision from the data}
        \quad\Rightarrow\quad \text{share} = \frac{\sigma_q^2}{\sigma_p^2} \in [0, 1]

    which holds for a normal posterior under a normal prior once it is trained; an element whose share is 1 has learnt
    nothing from the data. A posterior wider than its prior, as there may be before training has converged, counts as
    1. With log-normal factors the same is true of the logarithm. In a rank-1 model trained with ``member_kl="sum"``
    each member sees the data with a weight of 1 / K, and so is the data's precision.

    Factors of other families have no such split and are left out; if no part of the model has one, an error says so.

    Args:
        model: A mean-field, k-tied or rank-1 model.

    Example:
        >>> import slimbayes as sb
        >>> model = sb.mean_field(torch.nn.Linear(4, 2), init_std=0.15, init_jitter=0.0, prior_std=0.3)
        >>> round(prior_share(model)["weight"].mean, 4)
        0.25
    """
    shares: dict[str, PriorShare] = {}
    undefined: list[str] = []
    for part in posterior_parts(model):
        if isinstance(part, GaussianWeight):
            shares[layer_name(part.name)] = _share(part, part.scale, part.prior_std)
        elif (prior_scale := _prior_scale(part)) is not None:
            shares[layer_name(part.name)] = _share(part, part.scale, prior_scale)
        else:
            undefined.append(f"{part.name} ({part.family.name} under {part.prior.family.name})")
    if not shares:
        raise ValueError(
            "Expected argument `model` to have normal posteriors under normal priors, whose precisions add up, but "
            f"got {', '.join(undefined[:3]) or 'none at all'}{', ...' if len(undefined) > 3 else ''}."
        )
    return shares


def _prior_scale(factor: Factor) -> Tensor | None:
    """Return the scale of the prior if it and the posterior are normal, or both log-normal, else None."""
    family = type(factor.family)
    if family not in (Normal, LogNormal) or family is not type(factor.prior.family):
        return None
    prior = factor.prior.distribution(factor.loc)
    assert isinstance(prior, (torch.distributions.Normal, torch.distributions.LogNormal))
    return prior.scale


def _share(part: Factor | GaussianWeight, scale: Tensor, prior_scale: Tensor | float) -> PriorShare:
    prior_scales = as_matrix(part, prior_scale) if isinstance(prior_scale, Tensor) else prior_scale
    shares = np.minimum((as_matrix(part, scale) / prior_scales) ** 2, 1)
    if isinstance(part, GaussianWeight) and part.fixed_row is not None:
        shares[:, part.fixed_row] = np.nan
    return PriorShare(float(np.nanmean(shares)), shares)
