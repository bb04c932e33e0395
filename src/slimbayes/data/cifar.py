"""CIFAR-10 and CIFAR-100, from the publisher's binary version: an unpacked folder, or the archive as it is."""

import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from slimbayes._checks import check_choice
from slimbayes.data.augmentation import PadCropFlip
from slimbayes.data.dataset import DataSet, Examples
from slimbayes.data.images import image_set, named_preparation
from slimbayes.data.sources import missing
from slimbayes.data.splits import split_rows

__all__ = ["load_cifar10", "load_cifar100"]

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_MEAN = (0.4914, 0.4822, 0.4465)
_NORMALISATIONS = {
    "standard": (_MEAN, (0.2470, 0.2435, 0.2616)),
    "paper": (_MEAN, (0.2023, 0.1994, 0.2010)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
_MEAN_100 = (0.5071, 0.4865, 0.4409)
_NORMALISATIONS_100 = {**_NORMALISATIONS, "standard": (_MEAN_100, (0.2673, 0.2564, 0.2762))}


class _Layout(NamedTuple):
    """Files of one set; each image is its labels, one byte each, the finest last, and the pixels."""

    name: str
    title: str
    folder: str
    archive: str
    train: Mapping[str, int]  # images in each file
    test: Mapping[str, int]
    class_names: str
    classes: int
    labels: int

    @property
    def files(self) -> list[str]:
        return [*self.train, *self.test, self.class_names]


_CIFAR10 = _Layout(
    name="cifar10",
    title="CIFAR-10",
    folder="cifar-10-batches-bin",
    archive="cifar-10-binary.tar.gz",
    train={f"data_batch_{number}.bin": 10_000 for number in range(1, 6)},
    test={"test_batch.bin": 10_000},
    class_names="batches.meta.txt",
    classes=10,
    labels=1,
)
_CIFAR100 = _Layout(
    name="cifar100",
    title="CIFAR-100",
    folder="cifar-100-binary",
    archive="cifar-100-binary.tar.gz",
    train={"train.bin": 50_000},
    test={"test.bin": 10_000},
    class_names="fine_label_names.txt",
    classes=100,
    labels=2,
)


def load_cifar10(
    folder: Path,
    *,
    validation: int | float = 5_000,
    validation_from: str = "train",
    augment: bool = True,
    pad: int = 4,
    normalise: str = "standard",
) -> DataSet:
    """Load CIFAR-10.

    Args:
        folder: Holds ``cifar-10-batches-bin``, its files, or ``cifar-10-binary.tar.gz``.
        validation: How many of the last training images validate, or which part of them; 0 trains on all.
        validation_from: ``"test"`` trains on all, validates on the first test images, so many, and tests on the others:
            for weights that have seen every training image.
        augment: Whether training batches are padded, cropped and flipped at random.
        pad: Pixels on each side. 4 is the custom; the code of the rank-1 paper has 2.
        normalise: ``"standard"`` (each channel to mean 0 and variance 1), ``"paper"`` (the smaller standard deviations
            that the code of the rank-1 paper had), ``"imagenet"`` (ImageNet's, as many public weights want it),
            ``"symmetric"`` (-1 to 1), or ``"unit"`` (0 to 1).

    Shape:
        - Raw inputs: ``(n, 3, 32, 32)``, uint8. Targets: ``(n,)``, int64.

    Raises:
        MissingData: The files are not there.
        ValueError: A file is broken.

    Example:
        >>> load_cifar10(Path("no-such-folder"))
        Traceback (most recent call last):
            ...
        slimbayes.data.folders.MissingData: Found no data_batch_1.bin, ...
    """
    return _load(_CIFAR10, folder, validation, validation_from, augment, pad, normalise, _NORMALISATIONS)


def load_cifar100(
    folder: Path,
    *,
    validation: int | float = 5_000,
    validation_from: str = "train",
    augment: bool = True,
    pad: int = 4,
    normalise: str = "standard",
) -> DataSet:
    """Load CIFAR-100 with its 100 fine classes.

    The k-tied paper has ``validation=10_000, augment=False, normalise="unit"``.

    Args:
        folder: Holds ``cifar-100-binary``, its files, or ``cifar-100-binary.tar.gz``.
        validation: How many of the last training images validate, or which part of them; 0 trains on all.
        validation_from: ``"test"`` trains on all, validates on the first test images, so many, and tests on the others:
            for weights that have seen every training image.
        augment: Whether training batches are padded, cropped and flipped at random.
        pad: Pixels on each side. 4 is the custom; the code of the rank-1 paper has 2.
        normalise: ``"standard"`` (each channel to mean 0 and variance 1), ``"paper"`` (CIFAR-10's means and
            smaller standard deviations, as the rank-1 code had), ``"imagenet"``, ``"symmetric"`` (-1 to 1) or
            ``"unit"`` (0 to 1).

    Example:
        >>> data = load_cifar100(Path("data"), validation=10_000)  # doctest: +SKIP
        >>> len(data.train), data.task.classes[:2]  # doctest: +SKIP
        (40000, ('apple', 'aquarium_fish'))
    """
    return _load(_CIFAR100, folder, validation, validation_from, augment, pad, normalise, _NORMALISATIONS_100)


def _load(
    layout: _Layout,
    folder: Path,
    validation: int | float,
    validation_from: str,
    augment: bool,
    pad: int,
    normalise: str,
    known: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]],
) -> DataSet:
    check_choice("validation_from", validation_from, ("train", "test"))
    preparation = named_preparation(normalise, _SHAPE, known)
    augmentation = PadCropFlip(pad) if augment else None
    place, contents = _read(layout, folder)
    classes = contents[layout.class_names].decode(errors="replace").split()
    if len(classes) != layout.classes:
        raise ValueError(
            f"{place / layout.class_names} should name {layout.classes} classes, but names {len(classes)}."
        )
    train, test = (_examples(layout, place, contents, files) for files in (layout.train, layout.test))
    if validation_from == "train":
        return image_set(layout.name, train, test, classes, validation, preparation, augmentation)
    whole = image_set(layout.name, train, test, classes, 0, preparation, augmentation)
    count = len(split_rows(len(test), validation, seed=None).validation)
    (images,), targets = test.inputs, test.targets
    first = Examples((images[:count],), targets[:count]) if count else None
    return replace(whole, validation=first, test=Examples((images[count:],), targets[count:]))


def _examples(layout: _Layout, place: Path, contents: Mapping[str, bytes], files: Mapping[str, int]) -> Examples:
    width, parts = layout.labels + _PIXELS, []
    for name, images in files.items():
        content = np.frombuffer(contents[name], np.uint8)
        if content.size != images * width:
            raise ValueError(
                f"{place / name} should have {images} x {width} = {images * width} bytes, but has {content.size}. "
                "Fetch it again."
            )
        parts.append(content.reshape(images, width))
        if (highest := parts[-1][:, layout.labels - 1].max()) >= layout.classes:
            raise ValueError(f"{place / name} has the label {highest}, but there are {layout.classes} classes.")
    rows = torch.from_numpy(np.concatenate(parts))
    return Examples((rows[:, layout.labels :].unflatten(1, _SHAPE),), rows[:, layout.labels - 1].long())


def _read(layout: _Layout, folder: Path) -> tuple[Path, dict[str, bytes]]:
    """Return where the files are, and what they hold."""
    places = [folder / layout.folder, folder / layout.name / layout.folder, folder / layout.name, folder]
    lacking = {place: [name for name in layout.files if not (place / name).is_file()] for place in places}
    for place in places:
        if not lacking[place]:
            return place, {name: (place / name).read_bytes() for name in layout.files}
    for place in places:
        if (place / layout.archive).is_file():
            return place / layout.archive, _read_archive(layout, place / layout.archive)
    fullest = min(places, key=lambda place: len(lacking[place]))
    raise missing(layout.name, f"{', '.join(lacking[fullest])} in {fullest}, and no {layout.archive} in {folder}")


def _read_archive(layout: _Layout, archive: Path) -> dict[str, bytes]:
    contents = {}
    try:
        with tarfile.open(archive, "r:*") as tar:
            for member in tar:
                name = Path(member.name).name
                if name in layout.files and (file := tar.extractfile(member)):
                    contents[name] = file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{archive} is truncated or damaged: {error}. Fetch it again.") from error
    if lacking := [name for name in layout.files if name not in contents]:
        raise ValueError(f"{archive} lacks {', '.join(lacking)}. Fetch the binary version again.")
    return contents
