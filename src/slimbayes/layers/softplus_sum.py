"""The sum of softplus(a_i + b_j) over all pairs, in linear time: what makes the KL of a 2-tied weight cheap."""

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

__all__ = ["softplus_pair_sum"]


def softplus_pair_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    r"""Return :math:`\sum_{ij} \log(1 + e^{a_i + b_j})` and its gradients, or None if all pairs would be no dearer.

    As a function of b the softplus is interpolated at Chebyshev nodes :math:`y_p` of the interval that holds all b:

    .. math::
        \sum_{ij} f(a_i + b_j) = \sum_i \sum_p w_p f(a_i + y_p), \qquad w_p = \sum_j L_p(b_j)

    with Lagrange's polynomials L; the gradient for b comes from nodes for a in the same way. The error falls like
    :math:`\rho^{-P}`, where the ellipse of size :math:`\rho` around the interval reaches the singularities of f at a
    distance of :math:`\pi` from the real axis: ten to forty nodes are enough, whatever the number of pairs.

    Args:
        a: ``(m,)``.
        b: ``(n,)``.

    Example:
        >>> a, b = torch.linspace(-1, 1, 500).double(), torch.linspace(-2, 1, 400).double()
        >>> total, by_a, by_b = softplus_pair_sum(a, b)
        >>> torch.isclose(total, softplus(a[:, None] + b).sum(), rtol=1e-10, atol=0)
        tensor(True)
    """
    (low_a, high_a), (low_b, high_b) = (torch.stack(values.aminmax()).tolist() for values in (a, b))
    centre_a, centre_b = (low_a + high_a) / 2, (low_b + high_b) / 2
    half = max(high_a - low_a, high_b - low_b, 1e-6) / 2
    count = _nodes_needed(half, 1e-11 if a.dtype == torch.float64 else 1e-8)
    m, n = a.numel(), b.numel()
    if count is None or 8 * (m + n) * count > m * n:
        return None
    both = torch.cat([a - centre_a, b - centre_b])
    degrees = torch.arange(count, dtype=torch.float64, device=a.device)
    angles = (degrees + 0.5) * (math.pi / count)
    # L_p(x) = (1 + 2 sum_k T_k(x_p) T_k(x)) / P with Chebyshev's polynomials T_k(cos t) = cos k t
    places = (both.double() / half).clamp_(-1, 1).acos_()
    polynomials = (places.unsqueeze(1) * degrees).cos_()
    moments = torch.stack([polynomials[:m].sum(0), polynomials[m:].sum(0)]) * (2 / count)
    moments[:, 0] /= 2
    weights_a, weights_b = (moments @ (degrees.unsqueeze(1) * angles).cos()).to(a.dtype)
    sums = both.unsqueeze(1) + (half * angles.cos() + (centre_a + centre_b)).to(a.dtype)
    total = (softplus(sums[:m]) @ weights_b).sum(dtype=torch.float64)
    slopes = sums.sigmoid_()
    return total, slopes[:m] @ weights_b, slopes[m:] @ weights_a


def _nodes_needed(half: float, precision: float) -> int | None:
    """Return how many nodes an interval of that half-width needs; None for one that is too wide, or not finite."""
    if not half < 40:
        return None
    rho = math.pi / half + math.hypot(math.pi / half, 1.0)
    return math.ceil(-math.log(precision) / math.log(rho)) + 3
