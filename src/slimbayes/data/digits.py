"""Handwritten digits that ship inside scikit-learn, clean and corrupted."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["CORRUPTIONS", "Digits", "corrupt", "load_digits"]


@dataclass(frozen=True)
class Digits:
    """Images ``(n, 1, 8, 8)`` with values from 0 to 1, and their labels, in three parts."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def load_digits() -> Digits:
    """Return the 1,797 digits in a fixed order: 1,000 to train on, 297 to choose on, 500 to test on."""
    try:
        from sklearn.datasets import load_digits as load
    except ImportError as error:
        raise ImportError('The demo needs scikit-learn: pip install "slimbayes[sklearn]"') from error
    bunch = load()
    order = torch.randperm(len(bunch.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(bunch.images, dtype=torch.float32).unsqueeze(1)[order] / 16
    labels = torch.tensor(bunch.target).long()[order]
    bounds = ((0, 1000), (1000, 1297), (1297, 1797))
    return Digits(*((images[a:b], labels[a:b]) for a, b in bounds))


def _noise(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    return (x + (0.08 * severity) * torch.randn(x.shape, generator=generator)).clamp(0, 1)


def _blur(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    share = 0.2 * severity
    return (1 - share) * x + share * F.avg_pool2d(x, 3, 1, 1)


def _contrast(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    mean = x.mean((1, 2, 3), keepdim=True)
    return mean + (x - mean) * (1 - 0.16 * severity)


def _erase(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    return x * (torch.rand(x.shape, generator=generator) >= 0.08 * severity)


def _shift(x: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    moved = torch.rand(len(x), generator=generator) < 0.2 * severity
    rolled = F.pad(x, (1, 0))[..., :-1]
    return torch.where(moved.view(-1, 1, 1, 1), rolled, x)


CORRUPTIONS = {"noise": _noise, "blur": _blur, "contrast": _contrast, "erase": _erase, "shift": _shift}


def corrupt(images: Tensor, kind: str, severity: int) -> Tensor:
    """Return corrupted images; the same ones every time.

    Args:
        images: ``(n, 1, h, w)`` with values from 0 to 1.
        kind: A name in ``CORRUPTIONS``.
        severity: 1 to 5.

    Example:
        >>> corrupt(torch.full((1, 1, 8, 8), 0.5), "contrast", 3).unique()
        tensor([0.5000])
    """
    return CORRUPTIONS[kind](images, severity, torch.Generator().manual_seed(severity))
