"""Standard deviations replaced by a low-rank approximation after training: Tables 2, 3 and 5 of the k-tied paper."""

from collections.abc import Sequence

import torch
from torch import Tensor

from slimbayes._checks import check_choice, check_count, check_number
from slimbayes.analysis.matrices import layer_name
from slimbayes.conversion import copy_of
from slimbayes.layers.gaussian import GaussianWeight
from slimbayes.layers.scale import FullScale
from slimbayes.model import BayesianModel, unwrapped

__all__ = ["low_rank", "truncated_svd"]


def low_rank(model: BayesianModel, k: int, floor: float = 1e-7, layers: Sequence[str] | None = None) -> BayesianModel:
    r"""Return a copy of a mean-field model with each sigma replaced by its best approximation of rank k.

    .. math::
        \sigma \leftarrow \max\Big(\sum_{a=1}^k \gamma_a p_a q_a^\top, \; floor\Big)

    from the singular value decomposition of the matrix (appendix D.3). The approximation may have negative entries,
    which the paper sets to zero; the KL of a zero is infinite, so they are set to ``floor``, and each costs
    log(prior_std / floor) nats. Biases keep their standard deviations. For a posterior that is k-tied and can be
    trained on, use ``tie``.

    Args:
        model: A mean-field model.
        k: Rank.
        floor: Smallest standard deviation.
        layers: Names as in ``posterior_matrices``; the others stay as they are. None for all.

    Example:
        >>> import slimbayes as sb
        >>> model = sb.mean_field(torch.nn.Linear(20, 10))
        >>> approximated = low_rank(model, k=2)
        >>> torch.linalg.matrix_rank(approximated.net.weight_posterior.scale, rtol=1e-5).item()
        2
    """
    check_count("k", k, 1, "Give the rank of the approximation, such as 2.")
    check_number("floor", floor, low=0.0, remedy="The logarithm of the standard deviation is stored.")
    approximated = copy_of(model)
    for part in full_weights(approximated, layers):
        spread = part.spread
        assert isinstance(spread, FullScale)
        by_output = part.scale.detach().movedim(part.output_dim, 0)
        close = truncated_svd(by_output.flatten(1), k).view_as(by_output).movedim(0, part.output_dim)
        with torch.no_grad():
            spread.log_scale.copy_(close.clamp(min=floor).log())
    return approximated


def full_weights(model: BayesianModel, layers: Sequence[str] | None = None) -> list[GaussianWeight]:
    """Return the posteriors with a standard deviation for each entry of a weight, or raise if there are none.

    Args:
        model: A mean-field model.
        layers: Names of those that are wanted; None for all.
    """
    found = [
        part
        for part in unwrapped(model)[-1].stochastic()
        if isinstance(part, GaussianWeight) and isinstance(part.spread, FullScale) and part.mean.dim() > 1
    ]
    if not found:
        raise ValueError(
            f"Expected argument `model` to have a standard deviation for each weight, but this {model.method} model "
            "has no such layer. Make one with sb.mean_field."
        )
    if layers is None:
        return found
    named = {layer_name(part.name): part for part in found}
    for layer in layers:
        check_choice("layers", layer, named)
    return [part for name, part in named.items() if name in layers]


def truncated_svd(matrix: Tensor, k: int) -> Tensor:
    """Return the best approximation of rank k in the Frobenius norm.

    Example:
        >>> truncated_svd(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), 1)
        tensor([[2., 0.],
                [0., 0.]])
    """
    left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    return ((left[:, :k] * values[:k]) @ right[:k]).to(matrix.dtype)
