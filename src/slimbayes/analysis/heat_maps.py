"""A layer's standard deviations beside their approximations of low rank: Figures 4 and 11 of the k-tied paper."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from slimbayes._checks import check_count
from slimbayes.analysis._figures import new_axes
from slimbayes.analysis.low_rank import truncated_svd
from slimbayes.analysis.matrices import chosen_layer, posterior_matrices
from slimbayes.model import BayesianModel

__all__ = ["heat_maps", "plot_heat_maps"]


def heat_maps(
    model: BayesianModel, layer: str | None = None, ranks: Sequence[int] = (1, 2)
) -> dict[str | int, np.ndarray]:
    """Return the standard deviations of one layer and their best approximations of low rank, negatives at zero.

    Args:
        model: A mean-field, k-tied or rank-1 model.
        layer: A name from ``posterior_matrices``, which says how weights become matrices; None for the only one.
        ranks: Ranks of the approximations.

    Returns:
        Matrices ``(m, n)``, under ``"sigma"`` and under each rank.

    Example:
        >>> import slimbayes as sb
        >>> maps = heat_maps(sb.mean_field(torch.nn.Linear(20, 10)))
        >>> list(maps), maps["sigma"].shape, int(np.linalg.matrix_rank(maps[1]))
        (['sigma', 1, 2], (20, 10), 1)
    """
    for rank in ranks:
        check_count("ranks", rank, 1, "Give the ranks of the approximations, such as (1, 2).")
    matrices = posterior_matrices(model)
    sigma = matrices[chosen_layer(list(matrices), layer)].scale
    maps: dict[str | int, np.ndarray] = {"sigma": sigma}
    for rank in ranks:
        maps[rank] = truncated_svd(torch.from_numpy(sigma), rank).clamp(min=0).numpy()
    return maps


def plot_heat_maps(
    maps: BayesianModel | Mapping[str | int, np.ndarray],
    layer: str | None = None,
    ranks: Sequence[int] = (1, 2),
    axes: Any = None,
) -> Any:
    """Draw Figure 4: a layer's standard deviations beside their approximations, on one scale of colours.

    Args:
        maps: A model, or what ``heat_maps`` returned; ``layer`` and ``ranks`` are then as they were.
        layer: As for ``heat_maps``.
        ranks: As for ``heat_maps``.
        axes: One axes of matplotlib for each matrix; None for new ones.

    Returns:
        The axes.

    Example:
        >>> import matplotlib, slimbayes as sb
        >>> matplotlib.use("Agg")
        >>> axes = plot_heat_maps(sb.mean_field(torch.nn.Linear(20, 10)))
        >>> [ax.get_title() for ax in axes]
        ['σ', 'rank 1', 'rank 2']
    """
    maps = heat_maps(maps, layer, ranks) if isinstance(maps, BayesianModel) else maps
    axes = new_axes(len(maps), squeeze=False)[0] if axes is None else np.atleast_1d(axes)
    low, high = min(matrix.min() for matrix in maps.values()), max(matrix.max() for matrix in maps.values())
    for ax, (name, matrix) in zip(axes, maps.items(), strict=True):
        image = ax.imshow(matrix, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
        ax.set(title="σ" if name == "sigma" else f"rank {name}", xlabel="columns")
    axes[0].set_ylabel("rows")
    axes[0].figure.colorbar(image, ax=list(axes))
    return axes
