"""Glass blur: pixels wander a little between two Gaussian blurs."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimbayes.corruptions.base import Corruption, Draws, Images
from slimbayes.corruptions.filters import gaussian_filter
from slimbayes.corruptions.pixels import unit_interval, whole_levels

__all__ = ["GLASS_BLUR"]


def _draw(source: np.random.Generator, image: Images, constants: tuple[float, int, int]) -> Draws:
    """Column and row offsets of each visit."""
    _, distance, passes = constants
    visits = max(len(image) - 2 * distance, 0) ** 2
    return (source.integers(-distance, distance, size=(passes, visits, 2), dtype=np.int8),)


def _blur(images: Images, constants: tuple[float, int, int], offsets: NDArray[Any]) -> Images:
    sigma, distance, _ = constants
    side = images.shape[1]
    visited = np.arange(side - distance, distance, -1)
    targets = (visited[:, None] * side + visited).ravel()
    sources = targets + (offsets[..., 1].astype(int) * side + offsets[..., 0])
    blurred = whole_levels(gaussian_filter(unit_interval(images), sigma))
    wandered = np.stack([_copied(*each, targets.tolist()) for each in zip(blurred, sources, strict=True)])
    return whole_levels(gaussian_filter(unit_interval(wandered), sigma))


def _copied(image: Images, sources: NDArray[np.intp], targets: list[int]) -> Images:
    """Copy to each target the pixel at its source, in order: a source may be a target that was visited before.

    The original's line is written as an exchange, but both sides share memory, so that it only copies.
    """
    side = len(image)
    origin = list(range(side * side))
    for visits in sources.tolist():
        for target, source in zip(targets, visits, strict=True):
            origin[target] = origin[source]
    return image.reshape(side * side, -1)[origin].reshape(image.shape)


GLASS_BLUR = Corruption(
    "glass_blur",
    {
        32: ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        64: ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
        224: ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    },
    _blur,
    _draw,
)
