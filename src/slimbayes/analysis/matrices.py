"""Posteriors as matrices, the form in which the k-tied paper looks at them (section 2.1, appendix D.3)."""

from typing import NamedTuple

import numpy as np
from torch import Tensor

from slimbayes._checks import check_choice
from slimbayes.layers.gaussian import GaussianWeight
from slimbayes.layers.rank1 import Factor
from slimbayes.model import BayesianModel, unwrapped

__all__ = ["PosteriorMatrices", "posterior_matrices"]


class PosteriorMatrices(NamedTuple):
    """A posterior's means and standard deviations.

    Attributes:
        mean: ``(m, n)``.
        scale: ``(m, n)``, the matrix A of the paper.
    """

    mean: np.ndarray
    scale: np.ndarray


def posterior_matrices(model: BayesianModel) -> dict[str, PosteriorMatrices]:
    """Return the means and standard deviations of each layer, by name.

    A weight has one row for each input and one column for each output; convolutions have all dimensions but the
    output channels flattened, [3, 3, 512, 512] to [3 * 3 * 512, 512] (appendix D.3); embeddings have one column for
    each token; biases are left out. The factors of a rank-1 model have one row for each member (and rank) and one
    column for each channel.

    Args:
        model: A mean-field, k-tied or rank-1 model.

    Example:
        >>> import torch, slimbayes as sb
        >>> model = sb.mean_field(torch.nn.Sequential(torch.nn.Conv2d(2, 8, 3), torch.nn.Flatten()))
        >>> {name: posterior.scale.shape for name, posterior in posterior_matrices(model).items()}
        {'0': (18, 8)}
    """
    found = {
        layer_name(part.name): PosteriorMatrices(*(as_matrix(part, values) for values in (_location(part), part.scale)))
        for part in posterior_parts(model)
    }
    if not found:
        raise ValueError(
            f"Expected argument `model` to have posteriors over weights or factors, but this {model.method} model has "
            "none. Make one with sb.mean_field, sb.k_tied or sb.rank1."
        )
    return found


def posterior_parts(model: BayesianModel) -> list[Factor | GaussianWeight]:
    """Return the factors and the weights with a posterior; not biases, nor distributions of another kind."""
    return [
        part
        for part in unwrapped(model)[-1].stochastic()
        if isinstance(part, Factor) or (isinstance(part, GaussianWeight) and part.mean.dim() > 1)
    ]


def layer_name(part_name: str) -> str:
    """Return the name under which a random part is reported: its layer's, or its own inside of one."""
    name = part_name.removesuffix("weight_posterior").removesuffix(".")
    return name.replace(".posteriors.", ".").removeprefix("posteriors.") or "weight"


def chosen_layer(names: list[str], layer: str | None) -> str:
    """Return ``layer``, or the only name there is."""
    if layer is None and len(names) == 1:
        return names[0]
    check_choice("layer", layer, names)
    assert layer is not None
    return layer


def _location(part: Factor | GaussianWeight) -> Tensor:
    return part.mean if isinstance(part, GaussianWeight) else part.loc


def as_matrix(part: Factor | GaussianWeight, values: Tensor) -> np.ndarray:
    """Return values in the shape of a part's locations as the matrix that ``posterior_matrices`` makes of them."""
    values = values.detach().cpu().double()
    if isinstance(part, GaussianWeight):
        matrix = values.movedim(part.output_dim, 0).flatten(1).T
    else:
        matrix = values.reshape(-1, values.shape[-1])
    return matrix.numpy()
