"""The sums over the entries of a weight that a KL is made of, as one operation that makes its gradients on the way.

The plain form, ``layers.scale.plain_weighted_sum``, makes the whole matrix U V^T of a k-tied weight.
"""

from typing import Any

import torch
from torch import Tensor

from slimbayes._fast.guards import autograd_wanted, followed, gradients_by_autograd, has_memory
from slimbayes._fast.softplus_sum import softplus_pair_sum
from slimbayes.layers.scale import plain_weighted_sum

#: Entries of a block of U V^T; a block and its reciprocal stay in the processor's cache.
BLOCK = 2**17


def weighted_sum(by_log: float, by_square: float, means: Tensor | None, *logs: Tensor) -> Tensor | None:
    r"""Return :math:`a \sum_{ij} \log \sigma_{ij} + b \sum_{ij} (\sigma_{ij}^2 + \mu_{ij}^2)`.

    Args:
        by_log: a.
        by_square: b.
        means: :math:`\mu`; None for 0.
        *logs: :math:`\log \sigma`; or :math:`\log u`, ``(m, k)``, and :math:`\log v`, ``(n, k)``, with
            :math:`\sigma = U V^\top`, which is never kept.

    Example:
        >>> weighted_sum(1.0, 2.0, torch.ones(3, 4), torch.zeros(3, 4))  # 2 * (12 + 12)
        tensor(48.)
        >>> weighted_sum(1.0, 0.0, None, torch.zeros(3, 2), torch.zeros(4, 2))  # 12 log 2
        tensor(8.3178)
    """
    if followed() or not all(x is None or has_memory(x) for x in (means, *logs)):
        return None
    total: Tensor = _WeightedSum.apply(by_log, by_square, means, *logs)
    return total


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, by_log: float, by_square: float, means: Tensor | None, *logs: Tensor) -> Tensor:
        total, *gradients = (_of_full if len(logs) == 1 else _of_tied)(by_log, by_square, *logs)
        if means is not None:
            flat = means.flatten()
            total.add_(flat @ flat, alpha=by_square)
        ctx.weights = by_log, by_square
        ctx.save_for_backward(means, *logs, *gradients)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        means, *rest = ctx.saved_tensors
        logs, gradients = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        if autograd_wanted(grad):
            return gradients_by_autograd(plain_weighted_sum, [*ctx.weights, means, *logs], [grad])
        of_means = means * (grad * (2 * ctx.weights[1])) if ctx.needs_input_grad[2] else None
        return None, None, of_means, *(gradient * grad for gradient in gradients)


def _of_full(by_log: float, by_square: float, log_sigma: Tensor) -> tuple[Tensor, ...]:
    """Return the weighted sum over sigma and its gradient."""
    squares = (2 * log_sigma).exp_()
    total = (squares.sum() * by_square).add_(log_sigma.sum(), alpha=by_log)
    return total, squares.mul_(2 * by_square).add_(by_log)


def _of_tied(by_log: float, by_square: float, log_u: Tensor, log_v: Tensor) -> tuple[Tensor, ...]:
    r"""Return the weighted sum over U V^T and its gradients for log u and log v.

    .. math::
        \sum_{ij} \sigma_{ij}^2 = \sum_{ab} (U^\top U)_{ab} (V^\top V)_{ab}, \qquad
        \frac{\partial}{\partial \log u_{ia}} \sum_{ij} \log \sigma_{ij}
        = u_{ia} \sum_j v_{ja} / \sigma_{ij}, \qquad
        \sum_a \frac{\partial}{\partial \log u_{ia}} \sum_{ij} \log \sigma_{ij} = n

    The logarithms of two terms are summed in linear time (``softplus_pair_sum``), those of more block by block.
    """
    u, v = log_u.exp(), log_v.exp()
    total, of_u, of_v = _log_sum(log_u, log_v, u, v)
    gram_u, gram_v = u.T @ u, v.T @ v
    total = (total * by_log).add_(torch.sum(gram_u * gram_v), alpha=by_square)
    of_u.mul_(by_log).addcmul_(u @ gram_v, u, value=2 * by_square)
    of_v.mul_(by_log).addcmul_(v @ gram_u, v, value=2 * by_square)
    return total, of_u, of_v


def _log_sum(log_u: Tensor, log_v: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sum of log sigma with its gradients for log u and log v."""
    m, n, k = u.shape[0], v.shape[0], u.shape[1]
    if k == 1:
        return n * log_u.sum() + m * log_v.sum(), torch.full_like(u, n), torch.full_like(v, m)
    if k == 2:
        # log(u1 v1 + u2 v2) = log u1 + log v1 + softplus(log u2 / u1 + log v2 / v1)
        first, second = torch.cat([log_u, log_v]).unbind(1)
        fast = softplus_pair_sum(second - first, m)
        if fast is not None:
            total, derivatives = fast
            for logs, pairs in ((first[:m], n), (first[m:], m)):
                total.add_(logs.sum(dtype=torch.float64), alpha=pairs)
            gradients = torch.stack([-derivatives, derivatives], 1)
            gradients[:m, 0] += n
            gradients[m:, 0] += m
            return total.to(u.dtype), *gradients.to(u.dtype).split([m, n])
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
