"""What a corruption is: constants for five severities, the random numbers of one image, and a vectorised operation."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Corruption", "Draws", "Images"]

#: ``(images, side, side, channels)``, uint8; channels are 1 (grey) or 3.
Images = NDArray[np.uint8]
#: Random numbers; each array's first axis counts the images.
Draws = tuple[NDArray[Any], ...]


class Corruption(NamedTuple):
    """One of the common corruptions (Hendrycks & Dietterich 2019).

    Attributes:
        name: As in the files of CIFAR-10-C.
        constants: For images of side 32, 64 and 224: what each severity from 1 to 5 means.
        apply: Takes images, the constants of a severity and the draws of all images; returns corrupted images.
        draw: Takes a source of random numbers, one image ``(side, side, channels)`` and the constants; returns the
            image's random numbers. None for what is deterministic. Each image has a source of its own, so that what
            becomes of it depends on neither its batch nor its neighbours.
    """

    name: str
    constants: Mapping[int, tuple[Any, ...]]
    apply: Callable[..., Images]
    draw: Callable[[np.random.Generator, Images, Any], Draws] | None = None
