"""Random changes of whole batches of images; the given generator alone decides, so that workers do not matter."""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from slimbayes._checks import check_count, check_number

__all__ = ["PadCropFlip", "ResizedCropFlip"]


@dataclass(frozen=True)
class PadCropFlip:
    """Pads images with black, crops the old size at a random position, and flips half of them left to right.

    Args:
        pad: Pixels on each side. 4 is the custom for CIFAR.
        flip: Whether to flip.

    Shape:
        - Raw: ``(batch, channels, height, width)``, uint8. Result: the same.

    Example:
        >>> images = torch.ones(2, 1, 3, 3, dtype=torch.uint8)
        >>> (moved,) = PadCropFlip(pad=1)((images,), Generator().manual_seed(0))
        >>> moved[0, 0]
        tensor([[0, 1, 1],
                [0, 1, 1],
                [0, 0, 0]], dtype=torch.uint8)
    """

    pad: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        check_count("pad", self.pad, 0)

    def __call__(self, raw: tuple[Tensor, ...], generator: Generator) -> tuple[Tensor, ...]:
        """Return the changed batch."""
        (images,) = raw
        batch, _, height, width = images.shape
        windows = F.pad(images, [self.pad] * 4).unfold(2, height, 1).unfold(3, width, 1)
        top, left = _on(images, torch.randint(2 * self.pad + 1, (2, batch), generator=generator))
        changed = windows[torch.arange(batch, device=images.device), :, top, left]
        if self.flip:
            flipped = _on(images, _coins(batch, generator))
            changed[flipped] = changed[flipped].flip(-1)
        return (changed,)


@dataclass(frozen=True)
class ResizedCropFlip:
    """Crops a box of random area, shape and position, resizes it (bilinear), and flips half of the images.

    Images should not be much larger than the result: nothing smooths them before they shrink.

    Args:
        size: Height and width of the result.
        least_area: Of the box, as a part of the image's; the most is 1.
        most_stretch: Largest quotient of the box's sides, either way.

    Shape:
        - Raw: ``(batch, channels, any, any)``, uint8. Result: ``(batch, channels, *size)``, uint8.

    Example:
        >>> images = torch.full((2, 3, 8, 8), 7, dtype=torch.uint8)
        >>> (cropped,) = ResizedCropFlip((4, 4))((images,), Generator().manual_seed(0))
        >>> cropped.shape, cropped.unique()
        (torch.Size([2, 3, 4, 4]), tensor([7], dtype=torch.uint8))
    """

    size: tuple[int, int]
    least_area: float = 0.08
    most_stretch: float = 4 / 3

    def __post_init__(self) -> None:
        for side in self.size:
            check_count("size", side)
        check_number("least_area", self.least_area, 0, 1)
        check_number("most_stretch", self.most_stretch, 1, or_low=True)

    def __call__(self, raw: tuple[Tensor, ...], generator: Generator) -> tuple[Tensor, ...]:
        """Return the changed batch."""
        (images,) = raw
        batch, channels, *_ = images.shape
        scale, shift = self.boxes(images.shape, generator)
        direction = 1.0 - 2 * _coins(batch, generator)
        maps = torch.zeros(batch, 2, 3)  # from positions in the result to positions in the image, both on -1..1
        maps[:, 0, 0], maps[:, 1, 1], maps[:, :, 2] = scale[:, 0] * direction, scale[:, 1], shift
        grid = F.affine_grid(_on(images, maps), [batch, channels, *self.size], align_corners=False)
        values = F.grid_sample(images.float(), grid, padding_mode="border", align_corners=False)
        return (values.round_().to(torch.uint8),)

    def boxes(self, shape: torch.Size, generator: Generator) -> tuple[Tensor, Tensor]:
        """Return random boxes, on the scale where the image reaches from -1 to 1.

        Of ten tries the first that fits inside the image counts, else the whole image does.

        Args:
            shape: Of the images.
            generator: Decides.

        Shape:
            - Half sides, and centres: ``(batch, 2)`` each, across first.
        """
        batch, _, height, width = shape
        area, stretch = torch.rand(2, batch, 10, generator=generator)
        area = self.least_area + (1 - self.least_area) * area
        stretch = ((2 * stretch - 1) * math.log(self.most_stretch)).exp() * height / width
        sides = torch.stack(((area * stretch).sqrt(), (area / stretch).sqrt()), -1)
        fits = (sides <= 1).all(-1)
        first = sides[torch.arange(batch), fits.int().argmax(1)]
        half = torch.where(fits.any(1, keepdim=True), first, 1.0)
        return half, (1 - half) * (2 * torch.rand(batch, 2, generator=generator) - 1)


def _coins(count: int, generator: Generator) -> Tensor:
    return torch.randint(2, (count,), generator=generator).bool()


def _on(images: Tensor, values: Tensor) -> Tensor:
    """Return values on the images' device: they are drawn on the CPU, so that every device gets the same."""
    return values.to(images.device)
