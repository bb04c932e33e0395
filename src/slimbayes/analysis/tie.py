"""A k-tied model out of a trained mean-field one."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from slimbayes._checks import check_count, check_number
from slimbayes.analysis.low_rank import full_weights
from slimbayes.analysis.matrices import layer_name
from slimbayes.analysis.nonnegative import nonnegative_factors
from slimbayes.conversion import all_parameters, copy_of
from slimbayes.layers.gaussian import GaussianWeight
from slimbayes.layers.scale import FullScale, TiedScale
from slimbayes.model import BayesianModel

__all__ = ["tie"]


def tie(
    model: BayesianModel, k: int, iterations: int = 500, floor: float = 1e-7, layers: Sequence[str] | None = None
) -> BayesianModel:
    r"""Return a k-tied model whose standard deviations are close to those of a trained mean-field one.

    .. math::
        \sigma \approx U V^\top, \qquad U, V > 0

    by non-negative factorisation of each layer's matrix in the Frobenius norm (``nonnegative_factors``). A singular
    value decomposition comes closer, but has negative entries, which no k-tied posterior has; for k = 1 the two are
    the same. The result is as if made by ``sb.k_tied`` with the options of ``model``: it can be trained on (its
    parameters are new ones, and so need a new optimiser), saved and loaded. Means and biases stay as they are. With
    ``max_std``, each u and v stays below sqrt(max_std / k), which large standard deviations may not reach.

    Args:
        model: A model made by ``sb.mean_field``; it is not touched.
        k: Number of terms.
        iterations: Most sweeps of the factorisation.
        floor: Smallest standard deviation.
        layers: Names as in ``posterior_matrices``; the others stay untied. None for all.

    Example:
        >>> import slimbayes as sb
        >>> model = sb.mean_field(torch.nn.Linear(20, 10))
        >>> tied = tie(model, k=2)
        >>> tied.method, tied.net.weight_posterior.spread
        ('k_tied', TiedScale((10, 20), k=2))
    """
    if "estimator" not in model.options or "k" in model.options:  # the options of k_tied but for k
        raise ValueError(
            f"Expected argument `model` to be a mean_field model, but got a {model.method} one. Make it with "
            "sb.mean_field."
        )
    check_count("k", k, 1, "Give the rank of the standard deviations, such as 2.")
    check_count("iterations", iterations, 1)
    check_number("floor", floor, low=0.0, remedy="The logarithms of u and v are stored.")
    tied, k = copy_of(model), int(k)
    chosen = full_weights(tied, layers)
    untied = _untied(tied, chosen)
    for part in chosen:
        part.spread = _tied_scale(part, k, iterations, floor)
    tied.method = "k_tied"
    tied.options = {**tied.options, "k": k, "untied": untied}
    for layer in tied.parts:
        if layer.converted:
            layer.after = all_parameters(tied.net.get_submodule(layer.name))
    return tied


def _untied(model: BayesianModel, chosen: Sequence[GaussianWeight]) -> list[str]:
    """Return the layers that are left, as ``sb.k_tied`` names them: one is tied as a whole, or not at all."""
    names = {id(module): name for name, module in model.net.named_modules()}
    owners = {part: names[id(part.owner[0])] for part in full_weights(model)}
    tied = {owners[part] for part in chosen}
    if split := [layer_name(part.name) for part, owner in owners.items() if owner in tied and part not in chosen]:
        raise ValueError(
            f"Expected argument `layers` to have all weights of a layer or none, but it lacks {', '.join(split)}. "
            "Add what is missing."
        )
    return [owner for owner in dict.fromkeys(owners.values()) if owner not in tied]


def _tied_scale(part: GaussianWeight, k: int, iterations: int, floor: float) -> TiedScale:
    full = part.spread
    assert isinstance(full, FullScale)
    shape, stored = tuple(part.mean.shape), full.log_scale
    max_std = math.inf if full.bound is None else math.exp(full.bound)
    high = math.sqrt(max_std / k)
    by_output = full.values().movedim(part.output_dim, 0).flatten(1)
    random = torch.ones(len(by_output), dtype=torch.bool, device=by_output.device)
    if part.fixed_row is not None:
        random[part.fixed_row] = False
    u, v = nonnegative_factors(by_output[random].T, k, iterations, min(math.sqrt(floor / k), high), high)
    tied = TiedScale(
        shape,
        k,
        std=floor,
        max_std=None if full.bound is None else max_std,
        output_dim=part.output_dim,
        device=stored.device,
        dtype=stored.dtype,
    )
    with torch.no_grad():
        tied.log_u.copy_(u.log())
        tied.log_v.copy_(_in_rows(v, random).log())
    for parameter in tied.log_parameters():
        parameter.requires_grad_(stored.requires_grad)
    return tied.train(full.training)


def _in_rows(v: Tensor, random: Tensor) -> Tensor:
    """Return V with a row, of no effect, for what is not random."""
    rows = v.mean(0).expand(len(random), -1).clone()
    rows[random] = v
    return rows
