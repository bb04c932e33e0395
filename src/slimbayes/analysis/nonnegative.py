"""Factorisation of a matrix into two non-negative ones of low rank."""

import math

import torch
from torch import Tensor

__all__ = ["nonnegative_factors"]

#: Sweeps end when one lowers the squared residual by less than this part of the matrix's square.
TOLERANCE = 1e-13


def nonnegative_factors(
    matrix: Tensor, k: int, iterations: int = 500, low: float = 0.0, high: float = math.inf
) -> tuple[Tensor, Tensor]:
    r"""Return U and V that minimise :math:`\| A - U V^\top \|_F` with all their entries from ``low`` to ``high``.

    Hierarchical alternating least squares (Cichocki et al. 2007): each column of U, then of V, is set to its own
    minimum, which is an orthogonal projection; the residual never rises. It starts from the singular vectors
    (NNDSVD, Boutsidis & Gallopoulos 2008), so that k = 1 starts at its solution (Perron-Frobenius). For k > 1 the
    result is a local minimum, as from any such method. The columns of U and V have the same largest entries.

    Args:
        matrix: A, without negative entries.
        k: Columns of U and V.
        iterations: Most sweeps.
        low: Smallest entry of U and V.
        high: Largest entry of U and V.

    Shape:
        - ``matrix``: ``(m, n)``. Output: ``(m, k)`` and ``(n, k)``, in float64.

    Example:
        >>> u, v = nonnegative_factors(torch.tensor([[1.0, 2.0], [2.0, 4.0]]), 1)
        >>> (u @ v.T).round(decimals=6)
        tensor([[1., 2.],
                [2., 4.]], dtype=torch.float64)
    """
    matrix = matrix.detach().double()
    u, v = (factor.clamp(low, high) for factor in _balanced(*_start(matrix, k)))
    total = matrix.square().sum().item()
    before = math.inf
    for _ in range(iterations):
        _sweep(u, matrix @ v, v.T @ v, low, high)
        products, gram = matrix.T @ u, u.T @ u
        _sweep(v, products, gram, low, high)
        # |A - U V^T|^2 without another matrix of A's size; its rounding is below the tolerance.
        residual = (total - 2 * (v * products).sum() + (gram * (v.T @ v)).sum()).item()
        if before - residual <= TOLERANCE * total:
            break
        before = residual
        u, v = _balanced(u, v)
    u, v = _balanced(u, v)
    return u.clamp(low, high), v.clamp(low, high)


def _start(matrix: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the larger of the positive and negative parts of each pair of singular vectors."""
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    # Zeros are filled, or columns might start orthogonal to what is left to explain.
    little = 0.3 * math.sqrt(matrix.mean().item() / k)
    u, v = (matrix.new_full((size, k), little) for size in matrix.shape)
    for a in range(min(k, len(values))):
        parts = [((sign * left[:, a]).clamp(min=0), (sign * right[a]).clamp(min=0)) for sign in (1, -1)]
        x, y = max(parts, key=lambda part: float(part[0].norm() * part[1].norm()))
        root = (values[a] * x.norm() * y.norm()).sqrt()
        u[:, a] = torch.where(x > 0, root * x / x.norm(), little)
        v[:, a] = torch.where(y > 0, root * y / y.norm(), little)
    return u, v


def _sweep(factor: Tensor, products: Tensor, gram: Tensor, low: float, high: float) -> None:
    """Set each column in turn to its minimum, given the other columns and the other factor, in place."""
    for a in range(factor.shape[1]):
        rest = products[:, a] - factor @ gram[:, a] + factor[:, a] * gram[a, a]
        factor[:, a] = (rest / gram[a, a].clamp(min=torch.finfo(gram.dtype).tiny)).clamp(low, high)


def _balanced(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Scale each column of U and its partner of V to the same largest entry; their product stays."""
    tops = [factor.amax(0).clamp(min=torch.finfo(factor.dtype).tiny) for factor in (u, v)]
    ratio = (tops[1] / tops[0]).sqrt()
    return u * ratio, v / ratio
