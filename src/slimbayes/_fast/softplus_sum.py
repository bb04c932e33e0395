"""The sum of softplus(a_i + b_j) over all pairs, in linear time: what makes the KL of a 2-tied weight cheap."""

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import softplus

#: Relative to the largest term, by the type of the result.
PRECISION = {torch.float32: 1e-8, torch.float64: 1e-11}


def softplus_pair_sum(a_and_b: Tensor, m: int) -> tuple[Tensor, Tensor] | None:
    r"""Return :math:`\sum_{ij} \log(1 + e^{a_i + b_j})` and its gradients, or None if a sum over pairs costs no more.

    Both a and b are interpolated at Chebyshev nodes, :math:`x_p` of an interval that holds all a and :math:`y_q` of
    one that holds all b, so that the softplus is taken at pairs of nodes only:

    .. math::
        \sum_{ij} f(a_i + b_j) = \sum_{pq} w_p f(x_p + y_q) w'_q, \qquad
        \frac{\partial}{\partial a_i} = \sum_p L_p(a_i) \sum_q f'(x_p + y_q) w'_q, \qquad
        w_p = \sum_i L_p(a_i), \quad w'_q = \sum_j L_q(b_j)

    with Lagrange's polynomials L. The error falls like :math:`\rho^{-P}`, where the ellipse of size :math:`\rho` around
    the interval reaches the singularities of f at a distance of :math:`\pi` from the real axis: ten to forty nodes are
    enough, whatever the number of pairs.

    Args:
        a_and_b: All a, then all b, ``(m + n,)``.
        m: How many of them are a.

    Returns:
        The sum and, in the order of the input, the gradients; both in double precision.

    Example:
        >>> a, b = torch.linspace(-1, 1, 500).double(), torch.linspace(-2, 1, 400).double()
        >>> total, gradients = softplus_pair_sum(torch.cat([a, b]), 500)
        >>> torch.isclose(total, softplus(a[:, None] + b).sum(), rtol=1e-10, atol=0)
        tensor(True)
    """
    n = a_and_b.shape[0] - m
    a, b = a_and_b.split([m, n])
    low_a, high_a, low_b, high_b = torch.stack([*a.aminmax(), *b.aminmax()]).tolist()
    centre_a, centre_b = (low_a + high_a) / 2, (low_b + high_b) / 2
    half = max(high_a - low_a, high_b - low_b, 1e-6) / 2
    count = _nodes_needed(half, PRECISION.get(a_and_b.dtype, 1e-8))
    if count is None or 8 * (m + n) * count > m * n:
        return None
    degrees, to_nodes, pairs = _chebyshev(count, a_and_b.device)
    angles = a_and_b.to(torch.float64, copy=True)
    angles[:m] -= centre_a
    angles[m:] -= centre_b
    polynomials = (degrees * angles.div_(half).clamp_(-1, 1).acos_()).cos_()
    of_a, of_b = polynomials.split([m, n], 1)
    weights = torch.stack([of_a.sum(1), of_b.sum(1)]) @ to_nodes.T
    pairs = pairs * half + (centre_a + centre_b)
    weights_a, weights_b = weights.unbind()
    total = weights_a @ (softplus(pairs) @ weights_b)
    by_b, by_a = (weights @ pairs.sigmoid_() @ to_nodes).unbind()
    return total, torch.cat([by_a @ of_a, by_b @ of_b])


@lru_cache(64)
def _chebyshev(count: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return the degrees k, the matrix D of :math:`L_p = \sum_k D_{pk} T_k`, and all sums of two nodes.

    .. math::
        T_k(\cos t) = \cos k t, \qquad L_p(x) = \frac1P \Bigl(1 + 2 \sum_{k=1}^{P-1} T_k(x_p) T_k(x)\Bigr)
    """
    degrees = torch.arange(count, dtype=torch.float64, device=device).unsqueeze(1)
    angles = (degrees + 0.5) * (math.pi / count)
    to_nodes = (angles * degrees.T).cos_().mul_(2 / count)
    to_nodes[:, 0] /= 2
    nodes = angles.cos()
    return degrees, to_nodes, nodes + nodes.T


def _nodes_needed(half: float, precision: float) -> int | None:
    """Return how many nodes an interval of that half-width needs; None for one that is too wide, or not finite."""
    if not half < 40:
        return None
    rho = math.pi / half + math.hypot(math.pi / half, 1.0)
    return math.ceil(-math.log(precision) / math.log(rho)) + 3
