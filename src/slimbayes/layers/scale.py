"""Standard deviations of a weight: one for each entry, or k-tied, sigma = U V^T (Eq. 7); both in log parameters."""

import math
from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimbayes.layers.base import fused

__all__ = ["FullScale", "Scale", "TiedScale"]

#: Steps of the search for the nearest tied standard deviations.
TAKE_STEPS = 200


def plain_weighted_sum(by_log: float, by_square: float, means: Tensor | None, *logs: Tensor) -> Tensor:
    r"""Return :math:`a \sum_{ij} \log \sigma_{ij} + b \sum_{ij} (\sigma_{ij}^2 + \mu_{ij}^2)`.

    Args:
        by_log: a.
        by_square: b.
        means: :math:`\mu`; None for 0.
        *logs: :math:`\log \sigma`; or :math:`\log u`, ``(m, k)``, and :math:`\log v`, ``(n, k)``, with
            :math:`\sigma = U V^\top`.

    Example:
        >>> plain_weighted_sum(1.0, 2.0, torch.ones(3, 4), torch.zeros(3, 4))  # 2 * (12 + 12)
        tensor(48.)
    """
    sigma = logs[0].exp() if len(logs) == 1 else logs[0].exp() @ logs[1].exp().T
    if len(logs) == 1:
        log_sum = logs[0].sum()
    elif logs[0].shape[1] == 1:  # log(u v) = log u + log v
        log_sum = len(logs[1]) * logs[0].sum() + len(logs[0]) * logs[1].sum()
    else:
        log_sum = sigma.log().sum()
    total = by_log * log_sum + by_square * sigma.square().sum()
    return total if means is None else total + by_square * means.square().sum()


class Scale(nn.Module):
    """A positive tensor of a weight's shape.

    Attributes:
        bound: Upper bound of its log parameters, or None.
    """

    bound: float | None

    @abstractmethod
    def values(self) -> Tensor:
        """Return all standard deviations, in the weight's shape."""

    @abstractmethod
    def at(self, rows: Tensor) -> Tensor:
        """Return those of some rows of the weight, ``(*rows.shape, *rest)``."""

    def logs(self, rows: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return log sigma, or log u and log v, below the bound and in full precision; of some rows or all."""
        *others, last = (in_full_precision(_below(log, self.bound)) for log in self.log_parameters())
        return *others, last if rows is None else last[rows]

    def weighted_sum(
        self, by_log: float, by_square: float, means: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        r"""Return :math:`a \sum \log \sigma + b \sum (\sigma^2 + \mu^2)`, over some rows of the weight or all.

        Args:
            by_log: a.
            by_square: b.
            means: :math:`\mu` of those rows; None for 0.
            rows: Indices of rows, or None.
        """
        logs = self.logs(rows)
        found: Tensor | None = fused("weighted_sum", by_log, by_square, means, *logs)
        return plain_weighted_sum(by_log, by_square, means, *logs) if found is None else found

    @abstractmethod
    def log_parameters(self) -> tuple[nn.Parameter, ...]:
        """Return the free parameters, all logarithms."""

    @abstractmethod
    def take(self, values: Tensor) -> None:
        """Make the standard deviations these, or the nearest ones of this form, but none above the bound."""


class FullScale(Scale):
    r"""Mean-field: a free :math:`\log \sigma` for each weight.

    Args:
        shape: The weight's shape.
        std: Initial standard deviations are drawn from N(std, (jitter std)^2): N(0.01, 0.001) in appendix D.2.
        jitter: Their relative spread.
        max_std: Upper bound of sigma, or None.

    Example:
        >>> scale = FullScale((3, 4), std=0.01, jitter=0.0)
        >>> scale.values()[0]
        tensor([0.0100, 0.0100, 0.0100, 0.0100], grad_fn=<SelectBackward0>)
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        std: float,
        jitter: float = 0.1,
        max_std: float | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.bound = None if max_std is None else math.log(max_std)
        # Far below the mean, where a draw would be negative, the logarithm needs some positive value.
        start = std * (1 + jitter * torch.randn(shape)).clamp_(min=1e-3)
        self.log_scale = nn.Parameter(_below(start.log(), self.bound).to(device=device, dtype=dtype))

    def values(self) -> Tensor:  # noqa: D102
        return _below(self.log_scale, self.bound).exp()

    def at(self, rows: Tensor) -> Tensor:  # noqa: D102
        return _below(F.embedding(rows, self.log_scale), self.bound).exp()

    def log_parameters(self) -> tuple[nn.Parameter, ...]:  # noqa: D102
        return (self.log_scale,)

    @torch.no_grad()
    def take(self, values: Tensor) -> None:  # noqa: D102
        self.log_scale.copy_(_below(values.log(), self.bound))

    def extra_repr(self) -> str:
        """Show the shape."""
        return str(tuple(self.log_scale.shape))


class TiedScale(Scale):
    r"""k-tied: :math:`\sigma_{ij} = \sum_{a=1}^k u_{ia} v_{ja}` with free logarithms of u and v (Eqs. 7, 8).

    The weight is read as a matrix with one row for each output channel; a convolution's input channels and kernel
    are flattened together (appendix D.3), so u has one row for each of in * kernel, v for each output.

    Args:
        shape: The weight's shape.
        k: Number of terms.
        std: Initial sigma: log u and log v start at (log std - log k) / 2 plus noise (appendix D.4).
        jitter: Standard deviation of that noise, which breaks the symmetry of the k terms.
        max_std: Upper bound of sigma, or None. Each u and v is kept below sqrt(max_std / k), which is sufficient and
            keeps sigma of rank k.
        output_dim: Axis of the output channels; 1 in transposed convolutions.

    Example:
        >>> scale = TiedScale((64, 32, 3, 3), k=2, std=0.01)
        >>> scale.log_u.shape, scale.log_v.shape, scale.values().shape
        (torch.Size([288, 2]), torch.Size([64, 2]), torch.Size([64, 32, 3, 3]))
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        k: int,
        std: float,
        jitter: float = 0.1,
        max_std: float | None = None,
        output_dim: int = 0,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.shape, self.k, self.output_dim = tuple(shape), k, output_dim
        self.bound = None if max_std is None else 0.5 * (math.log(max_std) - math.log(k))
        outputs, inputs = shape[output_dim], math.prod(shape) // shape[output_dim]
        start = 0.5 * (math.log(std) - math.log(k))
        log_u, log_v = (_below(start + jitter * torch.randn(size, k), self.bound) for size in (inputs, outputs))
        self.log_u = nn.Parameter(log_u.to(device=device, dtype=dtype))
        self.log_v = nn.Parameter(log_v.to(device=device, dtype=dtype))

    @property
    def u(self) -> Tensor:
        """U: ``(inputs * kernel, k)``."""
        return _below(self.log_u, self.bound).exp()

    @property
    def v(self) -> Tensor:
        """V: ``(outputs, k)``."""
        return _below(self.log_v, self.bound).exp()

    def values(self) -> Tensor:  # noqa: D102
        rest = [size for axis, size in enumerate(self.shape) if axis != self.output_dim]
        return (self.v @ self.u.T).view(-1, *rest).movedim(0, self.output_dim)

    def at(self, rows: Tensor) -> Tensor:  # noqa: D102
        return _below(F.embedding(rows, self.log_v), self.bound).exp() @ self.u.T

    def log_parameters(self) -> tuple[nn.Parameter, ...]:  # noqa: D102
        return self.log_u, self.log_v

    @torch.no_grad()
    def take(self, values: Tensor) -> None:
        r"""Make :math:`\sigma = U V^\top` nearest to ``values`` t, by the divergence of the normals that have them.

        It minimises :math:`\sum_{ij} \sigma_{ij}^2 / (2 t_{ij}^2) - \log \sigma_{ij}`, the KL but for a constant, by
        steps that never raise it:

        .. math::
            u_{ia} \leftarrow u_{ia} \sqrt{\frac{\sum_j v_{ja} / \sigma_{ij}}{\sum_j v_{ja} \sigma_{ij} / t_{ij}^2}}

        and the same for v. (:math:`\sigma^2` and :math:`-\log \sigma` are convex, so by Jensen's inequality each is at
        most a sum over a of functions of one u.)
        """
        precision = values.double().movedim(self.output_dim, 0).flatten(1).square().reciprocal()  # (outputs, inputs)
        u, v = (log.double().exp() for log in (self.log_u, self.log_v))
        level = (precision * (v @ u.T).square()).mean().rsqrt().sqrt()  # a common factor first
        u, v = u * level, v * level
        for _ in range(TAKE_STEPS):
            sigma = v @ u.T
            u = u * ((sigma.reciprocal().T @ v) / ((sigma * precision).T @ v)).sqrt()
            sigma = v @ u.T
            v = v * ((sigma.reciprocal() @ u) / ((sigma * precision) @ u)).sqrt()
        balance = (u.log().mean() - v.log().mean()) / 2  # u and v of one size, as they start
        self.log_u.copy_(_below(u.log() - balance, self.bound))
        self.log_v.copy_(_below(v.log() + balance, self.bound))

    def extra_repr(self) -> str:
        """Show the shape and k."""
        return f"{self.shape}, k={self.k}"


def in_full_precision(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _below(log: Tensor, bound: float | None) -> Tensor:
    return log if bound is None else _Below.apply(log, bound)


class _Below(torch.autograd.Function):
    """min(x, bound); beyond the bound only gradients that lead back inside are passed on.

    The gradient of a plain clamp is zero there, and a parameter that has crossed the bound would never return.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, bound: float) -> Tensor:
        return x.clamp(max=bound)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.bound = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (x,), (grad,) = ctx.saved_tensors, grads
        return torch.where((x < ctx.bound) | (grad > 0), grad, 0.0), None
