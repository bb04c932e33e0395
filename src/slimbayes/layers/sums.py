"""Sums over the entries of a weight that a KL is made of, each with a gradient that costs one pass."""

from typing import Any

import torch
from torch import Tensor

from slimbayes.layers.own_gradients import gradients_by_autograd, plain_operations_wanted
from slimbayes.layers.softplus_sum import softplus_pair_sum

__all__ = ["full_sums", "sum_of_squares", "tied_sums"]

#: Entries of a block of U V^T; a block and its reciprocal stay in the processor's cache.
BLOCK = 2**17


def sum_of_squares(x: Tensor) -> Tensor:
    """Return the sum of x^2; autograd's own way makes several tensors of the size of x.

    Example:
        >>> sum_of_squares(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor(30.)
    """
    return x.square().sum() if plain_operations_wanted() else _SumOfSquares.apply(x)


class _SumOfSquares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        flat = x.flatten()
        return flat @ flat

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return ctx.saved_tensors[0] * (2 * grad)


def full_sums(log_scale: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums of log sigma and of sigma^2.

    Example:
        >>> full_sums(torch.zeros(2, 3))
        (tensor(0.), tensor(6.))
    """
    return _plain_full_sums(log_scale) if plain_operations_wanted() else _FullSums.apply(log_scale)


def _plain_full_sums(log_scale: Tensor) -> tuple[Tensor, Tensor]:
    return log_scale.sum(), (2 * log_scale).exp().sum()


class _FullSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_scale: Tensor) -> tuple[Tensor, Tensor]:
        squares = (2 * log_scale).exp_()
        ctx.save_for_backward(log_scale, squares)
        return log_scale.sum(), squares.sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor | None:
        log_scale, squares = ctx.saved_tensors
        if torch.is_grad_enabled():
            return gradients_by_autograd(_plain_full_sums, [log_scale], grads)[0]
        return squares * (2 * grads[1]) + grads[0]


def tied_sums(log_u: Tensor, log_v: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the sums of log sigma and of sigma^2 for sigma = U V^T, which is never kept.

    .. math::
        \sum_{ij} \sigma_{ij}^2 = \sum_{ab} (U^\top U)_{ab} (V^\top V)_{ab}, \qquad
        \frac{\partial}{\partial \log u_{ia}} \sum_{ij} \log \sigma_{ij}
        = u_{ia} \sum_j v_{ja} / \sigma_{ij}, \qquad
        \sum_a \frac{\partial}{\partial \log u_{ia}} \sum_{ij} \log \sigma_{ij} = n

    The logarithms of two terms are summed in linear time (``softplus_pair_sum``), those of more block by block. The
    gradients are made on the way.

    Shape:
        - ``log_u``: ``(m, k)``, ``log_v``: ``(n, k)``. Output: two scalars.

    Example:
        >>> tied_sums(torch.zeros(3, 2), torch.zeros(4, 2))  # 12 log 2, 12 * 4
        (tensor(8.3178), tensor(48.))
    """
    return _plain_tied_sums(log_u, log_v) if plain_operations_wanted() else _TiedSums.apply(log_u, log_v)


def _plain_tied_sums(log_u: Tensor, log_v: Tensor) -> tuple[Tensor, Tensor]:
    sigma = log_u.exp() @ log_v.exp().T
    return sigma.log().sum(), sigma.square().sum()


class _TiedSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_u: Tensor, log_v: Tensor) -> tuple[Tensor, Tensor]:
        u, v = log_u.exp(), log_v.exp()
        total, logs_u, logs_v = _log_sum(log_u, log_v, u, v)
        gram_u, gram_v = u.T @ u, v.T @ v
        squares_u, squares_v = (u @ gram_v).mul_(u), (v @ gram_u).mul_(v)
        ctx.save_for_backward(log_u, log_v, logs_u, logs_v, squares_u, squares_v)
        return total, (gram_u * gram_v).sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        log_u, log_v, logs_u, logs_v, squares_u, squares_v = ctx.saved_tensors
        if torch.is_grad_enabled():
            return gradients_by_autograd(_plain_tied_sums, [log_u, log_v], grads)
        logs, twice = grads[0], 2 * grads[1]
        return torch.addcmul(logs_u * logs, squares_u, twice), torch.addcmul(logs_v * logs, squares_v, twice)


def _log_sum(log_u: Tensor, log_v: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sum of log sigma with its gradients for log u and log v."""
    m, n, k = u.shape[0], v.shape[0], u.shape[1]
    if k == 1:
        return n * log_u.sum() + m * log_v.sum(), torch.full_like(u, n), torch.full_like(v, m)
    if k == 2:
        # log(u1 v1 + u2 v2) = log u1 + log v1 + softplus(log u2 / u1 + log v2 / v1)
        fast = softplus_pair_sum(log_u[:, 1] - log_u[:, 0], log_v[:, 1] - log_v[:, 0])
        if fast is not None:
            total = fast[0] + n * log_u[:, 0].double().sum() + m * log_v[:, 0].double().sum()
            by_row, by_column = (torch.stack([size - part, part], 1) for size, part in ((n, fast[1]), (m, fast[2])))
            return total.to(u.dtype), by_row.to(u.dtype), by_column.to(u.dtype)
    columns, others = v.T.contiguous(), v[:, :-1].contiguous()
    total, rows, by_column = u.new_zeros(()), [], torch.zeros_like(others)
    for part in u.split(max(1, BLOCK // n)):
        sigma = part @ columns
        total = total + sigma.log().sum()
        inverse = sigma.reciprocal_()
        rows.append(inverse @ others)
        by_column += inverse.T @ part[:, :-1]
    return total, _with_last(u, torch.cat(rows), n), _with_last(v, by_column, m)


def _with_last(factor: Tensor, sums: Tensor, total: int) -> Tensor:
    """Return the gradients for log parameters: of all columns but the last by their sums, of the last by the rest."""
    gradients = factor[:, :-1] * sums
    return torch.cat([gradients, total - gradients.sum(1, keepdim=True)], 1)
