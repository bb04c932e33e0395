"""The regularised incomplete beta function, which torch lacks: distribution functions of counts and Student-t's."""

import torch
from torch import Tensor

#: The continued fraction needs about the root of the larger parameter.
ITERATIONS = 20_000


def incomplete_beta(a: Tensor, b: Tensor, x: Tensor, rest: Tensor) -> Tensor:
    r"""Return :math:`I_x(a, b)` in double precision, by its continued fraction (DLMF 8.17.22).

    Args:
        a: First parameter, above 0.
        b: Second parameter, above 0.
        x: From 0 to 1.
        rest: 1 - x, without its rounding.

    Example:
        >>> incomplete_beta(*(torch.tensor(number) for number in (2.0, 1.0, 0.5, 0.5)))  # x^2
        tensor(0.2500, dtype=torch.float64)
    """
    a, b, x, rest = torch.broadcast_tensors(*(part.double() for part in (a, b, x, rest)))
    swapped = x > (a + 1) / (a + b + 2)  # where the other tail converges sooner
    a, b = torch.where(swapped, b, a), torch.where(swapped, a, b)
    x, rest = torch.where(swapped, rest, x), torch.where(swapped, x, rest)
    log_front = torch.xlogy(a, x) + torch.xlogy(b, rest) + (a + b).lgamma() - a.lgamma() - b.lgamma()
    value = (log_front.exp() / a) * _fraction(a, b, x)
    return torch.where(swapped, 1 - value, value).clamp(0, 1)


def _fraction(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """Return 1 / (1 + d_1 / (1 + d_2 / ...)), by Lentz's method."""
    tiny, eps = 1e-300, torch.finfo(torch.float64).eps
    c = torch.ones_like(x)
    d = 1 / _away(1 - (a + b) * x / (a + 1), tiny)
    value = d
    for m in range(1, ITERATIONS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 / _away(1 + term * d, tiny), _away(1 + term / c, tiny)
            value = value * c * d
        if bool(((c * d - 1).abs() < 4 * eps).all()):
            break
    return value


def _away(values: Tensor, tiny: float) -> Tensor:
    return torch.where(values.abs() < tiny, tiny, values)
