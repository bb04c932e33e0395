"""Images: raw uint8 to normalised floats, and back from files that a user wants predictions for."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slimbayes._checks import check_choice, check_number
from slimbayes.data._image_files import SUFFIXES, decode_image, find_images, height_and_width
from slimbayes.data.dataset import Augmentation, DataSet, Examples, Task
from slimbayes.data.preparation import Preparation, Raw, read_arrays, register_preparation
from slimbayes.data.splits import split_rows

__all__ = ["Images", "image_set", "named_preparation"]


@register_preparation
class Images(Preparation):
    """Scales uint8 images to 0..1 and normalises each channel.

    Args:
        mean: Of each channel, on the scale 0..1.
        std: Of each channel.
        size: Height and width.
        zoom: How image files are brought to the size: resized to cover ``zoom`` times it, then cropped at the centre.

    Shape:
        - Raw: ``(batch, channels, height, width)``, uint8, or larger by ``zoom``, of which the centre counts. Result:
          the same, float32.

    Example:
        >>> Images(mean=[0.5], std=[0.25], size=[1, 1])(torch.tensor([[[[255]]]], dtype=torch.uint8))
        (tensor([[[[2.]]]]),)
    """

    kind = "images"

    def __init__(self, mean: Sequence[float], std: Sequence[float], size: Sequence[int], zoom: float = 1.0) -> None:
        self.mean, self.std, self.size, self.zoom = list(mean), list(std), list(height_and_width(size)), zoom
        if len(self.mean) != len(self.std):
            raise ValueError(f"Expected one `std` for each `mean`, but got {len(self.std)} and {len(self.mean)}.")
        check_number("zoom", zoom, 1, or_low=True)
        for mean_value, std_value in zip(self.mean, self.std, strict=True):
            check_number("mean", mean_value)
            check_number("std", std_value, 0)
        self._mean, self._std = (255 * torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))

    def __repr__(self) -> str:
        return f"Images(mean={self.mean}, std={self.std}, size={self.size}, zoom={self.zoom:g})"

    def __call__(self, *raw: Tensor) -> tuple[Tensor, ...]:
        """Return normalised images."""
        (images,) = raw
        if images.dim() != 4 or images.shape[1] != len(self.mean):
            raise ValueError(f"Expected images of {len(self.mean)} channels, but got shape {tuple(images.shape)}.")
        height, width = self.size
        if images.shape[2:] == (round(height * self.zoom), round(width * self.zoom)) != (height, width):
            # Training images before their random crops: the centre is what an evaluation shows of them.
            top, left = (images.shape[2] - height) // 2, (images.shape[3] - width) // 2
            images = images[:, :, top : top + height, left : left + width]
        # Memory-mapped images have their channels last: a network's speed and rounding must not depend on that.
        floats = images.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        return (floats.sub_(self._mean.to(images.device)).div_(self._std.to(images.device)),)

    def spec(self) -> dict[str, Any]:  # noqa: D102
        return {"kind": self.kind, "mean": self.mean, "std": self.std, "size": self.size, "zoom": self.zoom}

    def read(self, path: Path) -> Raw:
        """Read a folder of image files, one image file, or an .npz or .npy of uint8 images.

        Args:
            path: A folder is read with its sub-folders, sorted by name. Files are brought to the network's size.
                Arrays must have it: ``(n, height, width)`` of grey, or with ``channels`` second or last.
        """
        if path.suffix in (".npy", ".npz"):
            return self._read_arrays(path)
        if not path.exists():
            raise FileNotFoundError(f"Found no {path}. Name a folder of images, an image, or an .npz or .npy file.")
        names = find_images(path) if path.is_dir() else [path.name]
        if not names:
            raise ValueError(f"Found no images in {path}. Files that end in {', '.join(SUFFIXES)} count.")
        folder = path if path.is_dir() else path.parent
        images = [decode_image(folder / name, self.size, len(self.mean), self.zoom) for name in names]
        return Raw((torch.stack(images),), names)

    def _read_arrays(self, path: Path) -> Raw:
        inputs, names = read_arrays(path)
        images, channels, (height, width) = inputs[0], len(self.mean), self.size
        if len(inputs) > 1:
            raise ValueError(f"{path} should hold one array of images, called x, but holds {len(inputs)}.")
        if images.dtype != torch.uint8:
            remedy = "Multiply images on 0..1 by 255 and round" if images.is_floating_point() else "Convert them"
            raise ValueError(f"{path} should hold uint8 images, 0 to 255, but holds {images.dtype}. {remedy}.")
        if tuple(images.shape[1:]) == (channels, height, width):
            return Raw((images,), names)
        if tuple(images.shape[1:]) == (height, width, channels):
            return Raw((images.permute(0, 3, 1, 2).contiguous(),), names)
        if channels == 1 and tuple(images.shape[1:]) == (height, width):
            return Raw((images.unsqueeze(1),), names)
        raise ValueError(
            f"{path} should hold {channels} x {height} x {width} images, shape (n, {channels}, {height}, {width}) or "
            f"(n, {height}, {width}, {channels}), but has shape {tuple(images.shape)}. Resize them."
        )


def named_preparation(
    normalise: str,
    shape: Sequence[int],
    known: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    zoom: float = 1.0,
) -> Images:
    """Return the preparation of a name.

    Args:
        normalise: One of ``known``, or ``"symmetric"`` (-1 to 1), or ``"unit"`` (0 to 1).
        shape: Channels, height and width.
        known: Mean and standard deviation of each channel, by name.
        zoom: See ``Images``.

    Example:
        >>> named_preparation("symmetric", (1, 28, 28), known={})
        Images(mean=[0.5], std=[0.5], size=[28, 28], zoom=1)
    """
    channels, *size = shape
    every = {**known, "symmetric": ([0.5] * channels, [0.5] * channels), "unit": ([0.0] * channels, [1.0] * channels)}
    check_choice("normalise", normalise, every)
    mean, std = every[normalise]
    return Images(mean=mean, std=std, size=size, zoom=zoom)


def image_set(
    name: str,
    train: Examples,
    test: Examples,
    classes: Sequence[str],
    validation: int | float,
    preparation: Images,
    augmentation: Augmentation | None = None,
) -> DataSet:
    """Return a data set of labelled images in memory.

    Args:
        name: Of the set.
        train: Training images in the publisher's order.
        test: Test images.
        classes: Names of the classes.
        validation: How many of the last training images validate instead, or which part of them; 0 for none.
        preparation: Normalises.
        augmentation: For training batches.
    """
    count = len(split_rows(len(train), validation, seed=None).train)
    (images,) = train.inputs
    held_out = Examples((images[count:],), train.targets[count:]) if count < len(train) else None
    task = Task("categorical", len(classes), tuple(images.shape[1:]), tuple(classes))
    rest = Examples((images[:count],), train.targets[:count])
    return DataSet(name, rest, held_out, test, task, preparation, augmentation)
