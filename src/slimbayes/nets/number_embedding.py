"""Features of single numbers of a table (Gorishniy et al. 2022)."""

import math

import torch
from torch import Tensor, nn

from slimbayes._checks import check_count, check_number

__all__ = ["Periodic", "PiecewiseLinear"]


class PiecewiseLinear(nn.Module):
    r"""Piecewise-linear encoding of numbers (Gorishniy et al. 2022).

    With the edges :math:`b_0 < \dots < b_T` of a column's bins, a number has the T features

    .. math::
        e_t = \begin{cases} 0 & x < b_{t-1} \text{ and } t > 1 \\ 1 & x \ge b_t \text{ and } t < T \\
        \frac{x - b_{t-1}}{b_t - b_{t-1}} & \text{otherwise.} \end{cases}

    The first and the last bin have no end, so that numbers out of the range of training are told apart.

    Args:
        edges: ``(columns, bins + 1)``, rising in each row, such as from ``quantile_edges``. Edges that are equal make
            empty bins, whose feature is 0 before them and 1 from them on.

    Attributes:
        features: Bins, the features of a number.

    Shape:
        - Input: ``(batch, columns)``. Output: ``(batch, columns, bins)``.

    Example:
        >>> PiecewiseLinear(torch.tensor([[0.0, 1.0, 3.0]]))(torch.tensor([[0.5], [2.0], [5.0]]))
        tensor([[[0.5000, 0.0000]],
        <BLANKLINE>
                [[1.0000, 0.5000]],
        <BLANKLINE>
                [[1.0000, 2.0000]]])
    """

    edges: Tensor

    def __init__(self, edges: Tensor) -> None:
        super().__init__()
        if edges.dim() != 2 or edges.shape[1] < 2:
            raise ValueError(
                f"Expected argument `edges` to have shape (columns, bins + 1), but got {tuple(edges.shape)}. Make them "
                "with PiecewiseLinear.quantile_edges(x, bins)."
            )
        if not (edges.diff(dim=1) >= 0).all():
            raise ValueError("Expected argument `edges` to rise along each row, but it does not. Sort them.")
        self.register_buffer("edges", edges)
        self.features = edges.shape[1] - 1

    @staticmethod
    def quantile_edges(x: Tensor, bins: int) -> Tensor:
        """Return edges of bins with about as many of these rows in each, as the paper has it.

        Args:
            x: ``(rows, columns)``.
            bins: How many.

        Example:
            >>> PiecewiseLinear.quantile_edges(torch.arange(5.0).unsqueeze(1), 2)
            tensor([[0., 2., 4.]])
        """
        check_count("bins", bins)
        return x.quantile(torch.linspace(0, 1, bins + 1, dtype=x.dtype), dim=0).T.contiguous()

    def forward(self, x: Tensor) -> Tensor:
        """Return the features."""
        low, high = self.edges[:, :-1], self.edges[:, 1:]
        wide = high > low
        share = torch.where(
            wide, (x.unsqueeze(-1) - low) / (high - low).where(wide, 1), (x.unsqueeze(-1) >= high).to(x)
        )
        if self.features == 1:
            return share
        first, inner, last = share[..., :1], share[..., 1:-1], share[..., -1:]
        return torch.cat([first.clamp(max=1), inner.clamp(0, 1), last.clamp(min=0)], -1)


class Periodic(nn.Module):
    r"""Periodic features of numbers with trained frequencies (Gorishniy et al. 2022), then a layer for each.

    .. math::
        v = [\sin(2 \pi c_1 x), \cos(2 \pi c_1 x), \dots], \quad c_l \sim N(0, \sigma^2), \quad
        e = \text{ReLU}(A v + a)

    with frequencies and a layer A of each column's own (the paper's "PLR").

    Args:
        columns: Numbers of a row.
        features: Of each number.
        frequencies: Of each number.
        scale: :math:`\sigma`, the one choice that matters much: small for smooth functions.

    Shape:
        - Input: ``(batch, columns)``. Output: ``(batch, columns, features)``.

    Example:
        >>> Periodic(3, features=8)(torch.randn(5, 3)).shape
        torch.Size([5, 3, 8])
    """

    def __init__(self, columns: int, features: int = 8, frequencies: int = 16, scale: float = 0.1) -> None:
        super().__init__()
        for name, value in (("columns", columns), ("features", features), ("frequencies", frequencies)):
            check_count(name, value)
        check_number("scale", scale, 0.0)
        self.features = features
        self.frequencies = nn.Parameter(scale * torch.randn(columns, frequencies))
        bound = 1 / math.sqrt(2 * frequencies)
        self.weight = nn.Parameter(torch.empty(columns, 2 * frequencies, features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(columns, features).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """Return the features."""
        angles = 2 * math.pi * self.frequencies * x.unsqueeze(-1)
        waves = torch.cat([angles.sin(), angles.cos()], -1)
        return (torch.einsum("bci,cio->bco", waves, self.weight) + self.bias).relu()
