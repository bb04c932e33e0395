"""Products of matrices in dense layers: our own kernels where they are quicker than torch's library, or torch's."""

from typing import Any

import torch
from torch import Tensor

from slimbayes.layers.scratch import WITH_MEMORY, scratch
from slimbayes.native import kernel

__all__ = ["groups_back", "product", "turned_product"]

#: Rows of the right matrix that kernels take at once, and the most columns (native/products.inc).
DEPTH, COLUMNS = 1024, 64
#: Of fewer rows, or a shorter sum, a product is over before kernels are at their best.
LEAST_ROWS, LEAST_DEPTH = 24, 32
#: Kernels compute whole panels of columns; this share of a result is what may be computed for nothing.
MOST_SPARE = 0.125
#: ``groups_back`` goes through all rows for each panel, which are to stay in a processor's second cache.
MOST_ROWS_OF_GROUPS = 2048


def product(
    left: Tensor, right: Tensor, turned: bool = False, out: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """Return ``left @ right``, or ``left @ right.T`` with ``turned``, plus a bias; outside autograd.

    Args:
        left: ``(rows, depth)``.
        right: ``(depth, columns)``, or ``(columns, depth)``.
        turned: Whether the right one is to be transposed.
        out: Memory for the result, ``(rows, columns)``.
        bias: ``(columns,)`` or None.

    Example:
        >>> product(torch.ones(2, 3), torch.ones(5, 3), turned=True)[0]
        tensor([3., 3., 3., 3., 3.])
    """
    rows, depth = left.shape
    columns = right.shape[0 if turned else 1]
    run = _kernel("product", rows, depth, columns, left, right, out)
    if run is None:
        right = right.T if turned else right
        return torch.mm(left, right, out=out) if bias is None else torch.addmm(bias, left, right, out=out)
    out = left.new_empty(rows, columns) if out is None else out
    memory = scratch("panel", left, DEPTH * COLUMNS)
    run(left.data_ptr(), right.data_ptr(), turned, rows, depth, columns, out.data_ptr(), memory.data_ptr())
    return out if bias is None else out.add_(bias)


def turned_product(left: Tensor, right: Tensor) -> Tensor:
    """Return ``left.T @ right``, outside autograd.

    Args:
        left: ``(rows, outputs)``.
        right: ``(rows, inputs)``.

    Example:
        >>> turned_product(torch.ones(4, 2), torch.ones(4, 3))
        tensor([[4., 4., 4.],
                [4., 4., 4.]])
    """
    (rows, outputs), inputs = left.shape, right.shape[1]
    run = _kernel("turned_product", outputs, rows, inputs, left, right)
    if run is None:
        return left.T @ right
    found = left.new_empty(outputs, inputs)
    memory = scratch("panel", left, DEPTH * COLUMNS + min(rows, DEPTH) * _padded(outputs))
    run(left.data_ptr(), right.data_ptr(), rows, outputs, inputs, found.data_ptr(), memory.data_ptr())
    return found


def groups_back(
    grad: Tensor, x: Tensor, weight: Tensor, s: Tensor, r: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None] | None:
    r"""Return the gradients of W, s and r in :math:`y = ((x \circ s) W^\top) \circ r` for groups of rows, or None.

    With :math:`N_k = g_k^\top x_k` over the rows of group k: :math:`\partial W = \sum_k N_k \circ r_k s_k^\top`,
    :math:`\partial s_k = (W \circ N_k)^\top r_k` and :math:`\partial r_k = (W \circ N_k) s_k`.
    No :math:`N_k` is stored.

    Args:
        grad: Of y, ``(rows, outputs)``.
        x: ``(rows, inputs)``.
        weight: W, ``(outputs, inputs)``.
        s: ``(groups, inputs)``.
        r: ``(groups, outputs)`` or None for ones.

    Example:
        >>> ones = torch.ones(64, 64)
        >>> found = groups_back(ones, ones, ones, torch.ones(1, 64), None)
        >>> found is None or found[1][0, 0].item() == 64 * 64
        True
    """
    (outputs, inputs), groups, rows = weight.shape, s.shape[0], x.shape[0]
    run = _kernel("groups_back", outputs, rows // groups, inputs, grad, x, weight, s, r)
    if run is None or rows > MOST_ROWS_OF_GROUPS:
        return None
    of_weight, of_s = torch.empty_like(weight), torch.empty_like(s)
    of_r = None if r is None else torch.empty_like(r)
    padded = _padded(outputs)
    memory = scratch("panel", grad, rows * (COLUMNS + padded) + groups * (padded * COLUMNS + 2 * COLUMNS))
    run(
        grad.data_ptr(),
        x.data_ptr(),
        weight.data_ptr(),
        s.data_ptr(),
        None if r is None else r.data_ptr(),
        groups,
        rows // groups,
        outputs,
        inputs,
        of_weight.data_ptr(),
        of_s.data_ptr(),
        None if of_r is None else of_r.data_ptr(),
        memory.data_ptr(),
    )
    return of_weight, of_s, of_r


def _padded(outputs: int) -> int:
    """Round up as kernels may do."""
    return outputs + 8


def _kernel(name: str, rows: int, depth: int, columns: int, first: Tensor, *others: Tensor | None) -> Any:
    """Return the compiled kernel if it knows how all lie in memory, and is quicker."""
    dtype = first.dtype
    run = kernel(name, dtype)
    if run is None or rows < LEAST_ROWS or depth < LEAST_DEPTH or -columns % COLUMNS > MOST_SPARE * columns:
        return None
    if torch.get_num_threads() > 1:  # torch's are quicker together
        return None
    given = [first, *(one for one in others if one is not None)]
    alike = all(type(one) in WITH_MEMORY and one.is_cpu and one.dtype is dtype and one.is_contiguous() for one in given)
    return run if alike else None
