"""Motion blur."""

import numpy as np
from numpy.typing import NDArray

from slimbayes.corruptions.base import Corruption, Draws, Images
from slimbayes.corruptions.line_blur import line_blur

__all__ = ["MOTION_BLUR"]


def _draw(source: np.random.Generator, image: Images, constants: tuple[float, float]) -> Draws:
    return (np.asarray(source.uniform(-45, 45)),)


def _blur(images: Images, constants: tuple[float, float], angles: NDArray[np.float64]) -> Images:
    return line_blur(images, *constants, angles)


MOTION_BLUR = Corruption(
    "motion_blur",
    {
        32: ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        64: ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
        224: ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    },
    _blur,
    _draw,
)
