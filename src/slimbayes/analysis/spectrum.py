"""How much of a posterior's variance its first singular values explain: Figures 3, 5 and 12 of the k-tied paper."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from slimbayes.analysis._figures import new_axes
from slimbayes.analysis.matrices import posterior_matrices
from slimbayes.model import BayesianModel

__all__ = ["ExplainedVariance", "explained_variance", "plot_explained_variance", "variance_shares"]


class ExplainedVariance(NamedTuple):
    """Shares of variance, one for each singular value in falling order; they sum to 1.

    Attributes:
        mean: Of the posterior means.
        scale: Of the posterior standard deviations.
    """

    mean: np.ndarray
    scale: np.ndarray


def explained_variance(model: BayesianModel) -> dict[str, ExplainedVariance]:
    r"""Return, for each layer, the share of variance that each singular value explains (section 2.3).

    .. math::
        \gamma_k^2 / \sum_{i} \gamma_i^2

    where :math:`\gamma` are the singular values of the matrix of means, or of standard deviations, as
    ``posterior_matrices`` makes them. A rank-1 model's factors are matrices of members by channels: one value
    explains all where members are alike.

    Args:
        model: A mean-field, k-tied or rank-1 model.

    Example:
        >>> import torch, slimbayes as sb
        >>> model = sb.k_tied(torch.nn.Linear(20, 10), k=2)
        >>> shares = explained_variance(model)["weight"]
        >>> bool(shares.scale[:2].sum() > 0.999), bool(shares.mean[:2].sum() < 0.6)
        (True, True)
    """
    return {
        name: ExplainedVariance(*(variance_shares(matrix) for matrix in matrices))
        for name, matrices in posterior_matrices(model).items()
    }


def variance_shares(matrix: np.ndarray) -> np.ndarray:
    """Return the share of each singular value, in falling order."""
    squares = np.linalg.svd(matrix, compute_uv=False) ** 2
    total = squares.sum()
    return squares / total if total else squares


def plot_explained_variance(
    shares: BayesianModel | Mapping[str, ExplainedVariance], axes: Any = None, values: int = 20
) -> Any:
    """Draw Figure 3: the share of variance per singular value, one line a layer, means beside standard deviations.

    Args:
        shares: A model, or what ``explained_variance`` returned.
        axes: Two axes of matplotlib; None for new ones.
        values: Singular values to show.

    Returns:
        The two axes.

    Example:
        >>> import matplotlib, torch, slimbayes as sb
        >>> matplotlib.use("Agg")
        >>> axes = plot_explained_variance(sb.mean_field(torch.nn.Linear(20, 10)))
        >>> axes[1].get_title()
        'posterior standard deviations'
    """
    shares = explained_variance(shares) if isinstance(shares, BayesianModel) else shares
    axes = new_axes(2, sharey=True) if axes is None else axes
    for ax, kind, title in zip(
        axes, ("mean", "scale"), ("posterior means", "posterior standard deviations"), strict=True
    ):
        for name, share in shares.items():
            line = getattr(share, kind)[:values]
            ax.plot(np.arange(1, len(line) + 1), line, marker=".", label=name)
        ax.set(title=title, xlabel="singular value", ylim=(0, 1.02))
    axes[0].set_ylabel("share of variance explained")
    axes[1].legend(title="layer")
    return axes
