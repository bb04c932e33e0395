"""The posterior's spectra and standard deviations, small enough for a JSON file."""

from typing import Any

import torch
import torch.nn.functional as F

from slimbayes.analysis.low_rank import truncated_svd
from slimbayes.analysis.matrices import posterior_matrices, posterior_parts
from slimbayes.analysis.spectrum import variance_shares
from slimbayes.model import BayesianModel

__all__ = ["posterior"]

#: Layers, singular values of each, heat maps and their sides: what a figure can show.
LAYERS, VALUES, MAPS, SIDE = 8, 20, 3, 64


def posterior(model: BayesianModel) -> dict[str, Any] | None:
    """Return the spectra of the first layers, and heat maps of their standard deviations.

    Args:
        model: Any model; without posteriors over weights or factors the result is None.

    Example:
        >>> import slimbayes as sb
        >>> found = posterior(sb.k_tied(torch.nn.Linear(20, 10), k=1))
        >>> found["spectra"][0]["std"][0], found["heat_maps"][0]["shape"]
        (1.0, [20, 10])
    """
    if not any(part.scale.any() for part in posterior_parts(model)):
        return None
    spectra: list[dict[str, Any]] = []
    heat_maps: list[dict[str, Any]] = []
    for name, matrices in list(posterior_matrices(model).items())[:LAYERS]:
        mean, std = ([_short(share) for share in variance_shares(matrix)[:VALUES]] for matrix in matrices)
        spectra.append({"layer": name, "mean": mean, "std": std})
        if len(heat_maps) < MAPS and min(matrices.scale.shape) > 1:
            sigma = torch.from_numpy(matrices.scale)
            maps = {"sigma": sigma, **{f"rank{k}": truncated_svd(sigma, k).clamp(min=0) for k in (1, 2)}}
            small = {key: _shrunk(values) for key, values in maps.items()}
            heat_maps.append({"layer": name, "shape": list(sigma.shape), **small})
    return {"spectra": spectra, "heat_maps": heat_maps}


def _shrunk(matrix: torch.Tensor) -> list[list[float]]:
    """Return the means over blocks, so that neither side is longer than ``SIDE``."""
    rows, columns = (min(side, SIDE) for side in matrix.shape)
    small = F.adaptive_avg_pool2d(matrix[None], (rows, columns))[0]
    return [[_short(value) for value in row] for row in small.tolist()]


def _short(value: float) -> float:
    return float(f"{value:.4g}")
