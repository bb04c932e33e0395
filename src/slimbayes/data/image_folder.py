"""Folders of images, one for each class; ImageNet is one."""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from slimbayes.data._image_files import ImageFiles, find_images, height_and_width, image_size
from slimbayes.data.augmentation import ResizedCropFlip
from slimbayes.data.dataset import DataSet, Rows, Task
from slimbayes.data.folders import MissingData
from slimbayes.data.images import named_preparation
from slimbayes.data.sources import missing
from slimbayes.data.splits import split_rows

__all__ = ["class_folders", "labelled_files", "load_image_folder", "load_imagenet"]

#: Images whose sizes are looked at, evenly spread over all.
LOOKED_AT = 2000
_NORMALISATIONS = {"imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))}
_IMAGENET_PLACES = ("imagenet", "ImageNet", "ILSVRC2012", "imagenet/ILSVRC/Data/CLS-LOC", "ILSVRC/Data/CLS-LOC", ".")


def load_image_folder(
    folder: Path,
    *,
    path: str,
    size: int | Sequence[int] | None = None,
    channels: int = 3,
    validation: int | float = 0.1,
    test: int | float = 0.1,
    seed: int = 0,
    augment: bool = True,
    least_area: float = 0.08,
    zoom: float | None = None,
    normalise: str | None = None,
) -> DataSet:
    """Load images from one folder for each class: ``CLASS/*.jpg``, or ``train/CLASS/*.jpg``, ``val/...``, ``test/...``.

    Parts that have no folder are split off: validation from the training images, test only if there is no ``train``.
    Each part is in a random order, so that its first examples are of many classes.

    Args:
        folder: Where a relative path may start, besides the working folder.
        path: The folder of the images.
        size: Height and width for the network, or one number for both. None: the images' own, or the most common one
            if they differ, which a warning states.
        channels: 3 for colour, 1 for grey.
        validation: How many images to choose on, or which part of them, if they have no folder; 0 for none.
        test: How many to test on, in the same way.
        seed: Of the split.
        augment: Whether training batches are cropped, resized and flipped at random.
        least_area: Of those random crops, as a part of the image.
        zoom: Images are resized to cover ``zoom`` times the size; evaluation crops the centre. None: 1 for the images'
            own size, 8/7 for a size that is given.
        normalise: ``"imagenet"`` (the default for colour), ``"symmetric"`` (-1 to 1; for grey), or ``"unit"`` (0 to 1).

    Shape:
        - Raw inputs: ``(n, channels, height, width)``, uint8; larger by ``zoom`` for training with ``augment``.

    Raises:
        MissingData: The folder is not there.
        ValueError: It holds no images in folders of classes.

    Example:
        >>> load_image_folder(Path("data"), path="no-such-folder")
        Traceback (most recent call last):
            ...
        slimbayes.data.folders.MissingData: Found no folder no-such-folder, neither in ... nor in data. ...
    """
    given = Path(path).expanduser()
    root = next((place for place in (given, folder / given) if place.is_dir()), None)
    if root is None:
        raise MissingData(
            f"Found no folder {path}, neither in the working folder ({Path.cwd()}) nor in {folder}. Check the option "
            "`path`, or name the data folder by --data-dir or SLIMBAYES_DATA. There should be a folder of images for "
            "each class, or train, val and test with such folders."
        )
    folders = {"train": root}
    if class_folders(root / "train"):
        places = {"train": ["train"], "validation": ["val", "valid", "validation"], "test": ["test"]}
        found = {part: [root / name for name in names if (root / name).is_dir()] for part, names in places.items()}
        folders, test = {part: some[0] for part, some in found.items() if some}, 0
    height, width = _own_size(folders["train"]) if size is None else height_and_width(size)
    return _load(
        "image_folder",
        folders,
        (channels, height, width),
        (1.0 if size is None else 8 / 7) if zoom is None else zoom,
        validation,
        test,
        seed,
        normalise or ("imagenet" if channels == 3 else "symmetric"),
        least_area if augment else None,
    )


def load_imagenet(
    folder: Path,
    *,
    size: int = 224,
    validation: int | float = 10_000,
    seed: int = 0,
    augment: bool = True,
    normalise: str = "imagenet",
) -> DataSet:
    """Load ImageNet (ILSVRC 2012) from ``train/WNID/*.JPEG`` and ``val/WNID/*.JPEG``.

    The publisher's validation images are the test set, as in all papers.

    Args:
        folder: Holds ``train`` and ``val``, itself or in ``imagenet``, ``ILSVRC2012`` or ``ILSVRC/Data/CLS-LOC``.
        size: Height and width for the network. Evaluation resizes the shorter side to 8/7 of it (256 for 224) and
            crops the centre.
        validation: How many random training images to choose on, or which part of them; 0 trains on all.
        seed: Of choosing those.
        augment: Whether training batches are cropped (8 to 100 % of the area), resized and flipped at random, out of
            the central square of each image.
        normalise: ``"imagenet"``, ``"symmetric"`` (-1 to 1), or ``"unit"`` (0 to 1).

    Raises:
        MissingData: The folders are not there.

    Example:
        >>> load_imagenet(Path("no-such-folder"))
        Traceback (most recent call last):
            ...
        slimbayes.data.folders.MissingData: Found no train and val, each with a folder for each class, in ...
    """
    for place in _IMAGENET_PLACES:
        root = folder / place
        if class_folders(root / "train") and class_folders(root / "val"):
            break
    else:
        raise missing(
            "imagenet",
            f"train and val, each with a folder for each class, in {folder} or its sub-folders "
            f"{', '.join(_IMAGENET_PLACES[:-1])}",
        )
    folders, shape = {"train": root / "train", "test": root / "val"}, (3, *height_and_width(size))
    return _load("imagenet", folders, shape, 8 / 7, validation, 0, seed, normalise, 0.08 if augment else None)


def labelled_files(folder: Path, classes: Sequence[str], shape: Sequence[int], zoom: float = 1.0) -> ImageFiles:
    """Return the images below each class's folder.

    Args:
        folder: Holds the folders.
        classes: Their names, in the order of the class numbers.
        shape: Channels, height and width.
        zoom: See ``ImageFiles``.

    Raises:
        ValueError: There are no images, or there is the folder of an unknown class.

    Example:
        >>> labelled_files(Path("no-such-folder"), ["cat", "dog"], (3, 32, 32))
        Traceback (most recent call last):
            ...
        ValueError: Found no images in no-such-folder, which should hold a folder of them for each class.
    """
    if unknown := sorted(set(class_folders(folder)) - set(classes)):
        raise ValueError(f"{folder} has the folder {unknown[0]}, which is no class of the training images.")
    found = [[f"{name}/{file}" for file in find_images(folder / name)] for name in classes]
    names = [name for files in found for name in files]
    if not names:
        raise ValueError(f"Found no images in {folder}, which should hold a folder of them for each class.")
    targets = torch.arange(len(classes)).repeat_interleave(torch.tensor([len(files) for files in found]))
    channels, height, width = shape
    return ImageFiles(folder, names, targets, (height, width), channels, zoom)


def class_folders(folder: Path) -> list[str]:
    """Return the names of a folder's folders, sorted; hidden ones do not count.

    Example:
        >>> class_folders(Path("no-such-folder"))
        []
    """
    if not folder.is_dir():
        return []
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _own_size(folder: Path) -> tuple[int, int]:
    """Return the most common height and width of the images in a folder's class folders, and warn if they differ."""
    names = [f"{name}/{file}" for name in class_folders(folder) for file in find_images(folder / name)]
    if not names:
        raise ValueError(f"Found no images in {folder}, which should hold a folder of them for each class.")
    chosen = names[:: -(-len(names) // LOOKED_AT)]
    counts = Counter(image_size(folder / name) for name in chosen)
    (size, count), *others = counts.most_common()
    if others:
        warnings.warn(
            f"The images in {folder} have {len(counts)} sizes. All are brought to the most common one, height "
            f"{size[0]} and width {size[1]}, which {count} of {len(chosen)} have; the option `size` chooses another.",
            stacklevel=3,
        )
    return size


def _load(
    name: str,
    folders: Mapping[str, Path],
    shape: tuple[int, int, int],
    zoom: float,
    validation: int | float,
    test: int | float,
    seed: int,
    normalise: str,
    least_area: float | None,
) -> DataSet:
    """Load the parts that have folders of their own, and split the others off from the training images."""
    preparation = named_preparation(normalise, shape, _NORMALISATIONS if shape[0] == 3 else {}, zoom)
    classes = class_folders(folders["train"])
    given = {part: labelled_files(folder, classes, shape, zoom) for part, folder in folders.items()}
    files = given.pop("train")
    rows = split_rows(len(files), 0 if "validation" in given else validation, 0 if "test" in given else test, seed)
    parts = {part: Rows(files, some) if len(some) else None for part, some in rows._asdict().items()}
    for part, others in given.items():  # shuffled as well, so that the first few are of many classes
        parts[part] = Rows(others, split_rows(len(others), seed=seed).train)
    augmentation = None
    if least_area is not None:
        augmentation = ResizedCropFlip(files.size, least_area)
        height, width = (round(side * zoom) for side in files.size)
        files = replace(files, size=(height, width), zoom=1.0)  # the augmentation crops
    task = Task("categorical", len(classes), shape, tuple(classes))
    return DataSet(name, Rows(files, rows.train), parts["validation"], parts["test"], task, preparation, augmentation)
