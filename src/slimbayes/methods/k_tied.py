"""The k-tied Normal distribution (Swiatkowski et al. 2020): mean-field posteriors with sigma = U V^T (Eq. 8)."""

from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from slimbayes.conversion import Selector, exactly
from slimbayes.layers.gaussian import GaussianOptions
from slimbayes.methods.mean_field import gaussian_model
from slimbayes.methods.registry import register_method
from slimbayes.model import BayesianModel

__all__ = ["k_tied"]

#: Terms that the paper recommends; they are always allowed.
DEFAULT = 2


def _rebuild(net: nn.Module, untied: list[str] | None = None, **options: Any) -> BayesianModel:
    return k_tied(net, untied=None if untied is None else exactly(untied), **options)


@register_method(
    title="k-tied",
    rebuild=_rebuild,
    for_trained={"prior": "tied_mean", "prior_std": 0.02},
    for_adapters={"prior": "tied_mean", "prior_std": "initial"},
)
def k_tied(
    net: nn.Module,
    k: int = DEFAULT,
    prior_std: float | str = 0.3,
    estimator: str = "reparameterization",
    *,
    untied: Selector = None,
    prior: str = "normal",
    init: str | float = "network",
    init_std: float = 0.01,
    init_jitter: float = 0.1,
    max_std: float | None = None,
    bayesian_bias: bool = True,
    sample_per: str = "draw",
    noise: str | None = None,
    include: Selector = None,
    exclude: Selector = None,
    freeze_base: bool = False,
    batch_dim: int = 0,
    trained: bool = False,
    train: Selector = None,
) -> BayesianModel:
    """Give every weight a Gaussian posterior whose standard deviations are tied: sigma = U V^T of rank k (Eq. 8).

    An m x n weight has k (m + n) parameters for its standard deviations instead of m n. With ``estimator="local"``
    the output variance of dense layers is computed from U and V alone, in O(batch (m + n) k^2). Biases have a standard
    deviation each. k = 1 is the matrix-variate normal with diagonal covariances (appendix A).

    Args:
        net: Any network; it is copied, its weights are the means.
        k: Number of terms; the paper finds that 2 is enough. At most the rank that some weight can have.
        prior_std: Scale of the prior N(0, prior_std^2); ``"initial"`` as for ``sb.mean_field``.
        estimator: ``"reparameterization"``, ``"local"`` or ``"flipout"``, see ``sb.mean_field``.
        untied: Layers that keep a standard deviation for each weight, such as ``nn.Conv2d`` in the paper's LeNet.
        prior: As for ``sb.mean_field``.
        init: As for ``sb.mean_field``.
        init_std: Initial sigma: log u and log v start at (log init_std - log k) / 2 (appendix D.4).
        init_jitter: Standard deviation of the noise on log u and log v that breaks the symmetry of the terms.
        max_std: Upper bound of sigma: each u and v is kept below sqrt(max_std / k).
        bayesian_bias: As for ``sb.mean_field``.
        sample_per: As for ``sb.mean_field``.
        noise: As for ``sb.mean_field``.
        include: As for ``sb.mean_field``.
        exclude: As for ``sb.mean_field``.
        freeze_base: As for ``sb.mean_field``.
        train: As for ``sb.mean_field``.
        batch_dim: As for ``sb.mean_field``.
        trained: The network is trained already: options that are not given have values that suit it,
            ``prior="tied_mean"``, ``prior_std=0.02``.

    Returns:
        A ``BayesianModel`` whose output has the draws on the first axis.

    Example:
        >>> import torch
        >>> model = k_tied(nn.Linear(100, 50), k=2, estimator="local")
        >>> model(torch.randn(5, 100), samples=3).shape
        torch.Size([3, 5, 50])
        >>> sum(p.numel() for p in model.added_parameters())  # 2 (100 + 50) for the weight, 50 for the bias
        350
    """
    if k is None:
        raise ValueError("Expected argument `k` to be a whole number of at least 1, but got None. Use sb.mean_field.")
    options = GaussianOptions(
        k=k,
        estimator=estimator,
        prior=prior,
        prior_std=prior_std,
        init=init,
        init_std=init_std,
        init_jitter=init_jitter,
        max_std=max_std,
        bayesian_bias=bayesian_bias,
        sample_per=sample_per,
    )
    if isinstance(net, nn.Module) and not any(map(is_lazy, net.parameters())):
        _check_k(options.k, net)
    return gaussian_model(net, options, noise, include, exclude, freeze_base, batch_dim, untied, train)


def _check_k(k: int | None, net: nn.Module) -> None:
    """Raise if no weight can have standard deviations of rank k, so that k terms tie nothing."""
    weights = [weight for weight in net.parameters() if weight.dim() > 1 and weight.numel()]
    sides = [(size, weight.numel() // size) for weight in weights for size in weight.shape[:2]]
    largest = max(sides, key=min, default=None)
    if k is not None and largest is not None and k > max(DEFAULT, min(largest)):
        raise ValueError(
            f"Expected argument `k` to be at most {max(DEFAULT, min(largest))}, but got {k}: no weight has a larger "
            f"rank (the largest is {largest[0]} x {largest[1]}), so that more terms tie nothing. Use a smaller k, or "
            "sb.mean_field."
        )
