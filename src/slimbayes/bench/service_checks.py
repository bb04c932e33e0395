"""Whether a form answers as the module does, before anyone asks how fast."""

import torch
from torch import Tensor

from slimbayes.bench.service_forms import Request

__all__ = ["WrongAnswer", "check_distribution", "check_same"]

TOLERANCE = 1e-5
#: Requests of each side; of so many means, the largest deviation seldom exceeds so many standard errors.
REPEATS, STANDARD_ERRORS = 100, 7.0
#: Examples that are asked about so often.
FEW = 8


class WrongAnswer(Exception):  # noqa: N818
    """A form's probabilities are not the module's."""


def check_same(request: Request, expected: Request, x: Tensor) -> float:
    """Return the largest distance between two functions' probabilities, or raise if it exceeds 1e-5.

    Example:
        >>> check_same(lambda x: x, lambda x: x, torch.ones(2, 3))
        0.0
    """
    with torch.no_grad():
        distance = (request(x) - expected(x)).abs().max().item()
    if not distance <= TOLERANCE:
        raise WrongAnswer(f"its probabilities differ from the module's by {distance:.1e} at batch {len(x)}")
    return distance


def check_distribution(request: Request, expected: Request, x: Tensor) -> float:
    """Return the largest distance between two random functions' mean probabilities, in standard errors, or raise.

    Raises, too, if the first one's answers do not differ from request to request.

    Example:
        >>> noisy = lambda x: x + torch.randn(x.shape)
        >>> check_distribution(noisy, noisy, torch.ones(2, 3)) < 7
        True
    """
    with torch.no_grad():
        if (shape := request(x).shape) != expected(x).shape:
            raise WrongAnswer(f"its probabilities have the shape {tuple(shape)} at batch {len(x)}")
        ours, theirs = (torch.stack([one(x[:FEW]) for _ in range(REPEATS)]).double() for one in (request, expected))
    if not ours.std(0).amax() > 0:
        raise WrongAnswer("it gives the same noise to every request")
    error = ((ours.var(0) + theirs.var(0)) / REPEATS).sqrt().clamp_min(torch.finfo(x.dtype).eps)
    distance = ((ours.mean(0) - theirs.mean(0)).abs() / error).max().item()
    if not distance <= STANDARD_ERRORS:
        raise WrongAnswer(f"its mean probabilities are {distance:.1f} standard errors from the module's")
    return distance
