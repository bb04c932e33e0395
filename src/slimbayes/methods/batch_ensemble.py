"""BatchEnsemble (Wen et al. 2020): rank-1 factors that are points, a mixture of Dirac deltas (section 3.3)."""

from typing import Any

from torch import nn

from slimbayes.methods.rank1 import rank1
from slimbayes.model import BayesianModel

__all__ = ["batch_ensemble"]


def batch_ensemble(net: nn.Module, members: int = 4, **options: Any) -> BayesianModel:
    """Make a BatchEnsemble out of a network: ``sb.rank1`` with the delta family, and so without a KL.

    Args:
        net: Any network; it is copied and its weights are kept.
        members: Ensemble members K.
        **options: Those of ``sb.rank1``, except ``family``. Giving a ``prior_family`` adds -log p(r, s), a
            maximum a posteriori estimate.

    Example:
        >>> import torch
        >>> model = batch_ensemble(nn.Linear(8, 3), members=4)
        >>> model(torch.randn(5, 8)).shape, model.kl()
        (torch.Size([4, 5, 3]), tensor(0.))
    """
    if "family" in options:
        raise TypeError(
            f"`batch_ensemble` takes no `family`, but got {options['family']!r}. Use sb.rank1 for other families."
        )
    return rank1(net, members, family="delta", **options)
