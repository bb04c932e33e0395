"""Images that a network was not trained for, brought to the size and the colours that it takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from slimbayes.data.dataset import Batch, ExampleSource
from slimbayes.shifts._draws import Draws

#: Red, green and blue of the luma (ITU-R BT.601), as pillow and the corruptions have it.
_LUMA = (0.299, 0.587, 0.114)
#: A patch of a photograph is so many times as high and wide as the image that is made of it, or it would be a plain
#: piece of sky too often.
_SHRINK = 4
#: Height and width of scikit-learn's photographs.
_PHOTO = (427, 640)


def fitted(images: Tensor, shape: Sequence[int]) -> Tensor:
    """Return images cropped to the shape's proportions, resized (bicubic, antialiased), in grey or colour.

    Args:
        images: ``(n, 1 or 3, *, *)``, uint8, or floats from 0 to 1.
        shape: Channels, height and width.

    Shape:
        - Result: ``(n, *shape)``, uint8.

    Example:
        >>> fitted(torch.full((1, 1, 8, 8), 0.2), (3, 2, 2)).unique()
        tensor([51], dtype=torch.uint8)
    """
    channels, height, width = shape
    values = images.float() * (255 if images.is_floating_point() else 1)
    if values.shape[1] > channels:
        values = (values * torch.tensor(_LUMA).view(3, 1, 1)).sum(1, keepdim=True)
    scale = min(values.shape[2] / height, values.shape[3] / width)
    down, across = round(height * scale), round(width * scale)
    top, left = (values.shape[2] - down) // 2, (values.shape[3] - across) // 2
    values = values[:, :, top : top + down, left : left + across]
    if (down, across) != (height, width):
        values = torch.nn.functional.interpolate(values, (height, width), mode="bicubic", antialias=True)
    return values.round().clamp(0, 255).to(torch.uint8).expand(-1, channels, -1, -1)


@dataclass(frozen=True)
class FittedImages:
    """The images of another set, fitted block by block.

    Args:
        source: Of images.
        shape: Channels, height and width that are wanted.
    """

    source: ExampleSource
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.source)

    def fetch(self, rows: Tensor) -> Batch:
        """Return fitted images and their own targets."""
        (images,), targets = self.source.fetch(rows)
        return (fitted(images, self.shape),), targets


@dataclass(frozen=True)
class NoiseImages:
    """Images of independent pixels, uniform from 0 to 255.

    Args:
        count: Number of images.
        shape: Channels, height and width.
        seed: Of the pixels.
    """

    count: int
    shape: tuple[int, ...]
    seed: int = 0

    def __len__(self) -> int:
        return self.count

    def fetch(self, rows: Tensor) -> Batch:
        """Return images, and 0 for each."""
        images = Draws("noise images", self.seed, rows).below(256, *self.shape).to(torch.uint8)
        return (images,), torch.zeros(len(rows))


@dataclass(frozen=True)
class Photos:
    """Patches, at random positions, of the two photographs inside scikit-learn: a temple and a flower.

    Args:
        count: Number of patches.
        shape: Channels, height and width.
        seed: Of the positions.
    """

    count: int
    shape: tuple[int, ...]
    seed: int = 0

    @staticmethod
    def fit(shape: Sequence[int]) -> bool:
        """Return whether patches of the photographs make images of a shape."""
        return all(_SHRINK * side <= most for side, most in zip(shape[1:], _PHOTO, strict=True))

    def __len__(self) -> int:
        return self.count

    def fetch(self, rows: Tensor) -> Batch:
        """Return images, and 0 for each."""
        photos = _photographs()
        positions = Draws("photos", self.seed, rows).uniform(3)
        down, across = (_SHRINK * side for side in self.shape[1:])
        free = torch.tensor([len(photos), _PHOTO[0] - down + 1, _PHOTO[1] - across + 1])
        patches = [
            photos[photo, :, top : top + down, left : left + across] for photo, top, left in (positions * free).long()
        ]
        images = torch.stack(patches) if patches else photos[:0, :, :down, :across]
        return (fitted(images, self.shape),), torch.zeros(len(rows))


@cache
def _photographs() -> Tensor:
    """Return ``(2, 3, 427, 640)``, uint8."""
    try:
        from sklearn.datasets import load_sample_images

        photographs = load_sample_images().images
    except ImportError as error:
        raise ImportError(
            'The photographs are scikit-learn\'s, and pillow reads them: pip install "slimbayes[sklearn]" pillow'
        ) from error
    return torch.from_numpy(np.stack(photographs)).permute(0, 3, 1, 2)
