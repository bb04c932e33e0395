"""CIFAR-10-C, CIFAR-100-C and ImageNet-C: test images with corruptions of five severities."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from slimbayes._checks import check_choice, check_count
from slimbayes.data._image_files import ImageFiles
from slimbayes.data.dataset import Examples
from slimbayes.data.folders import MissingData
from slimbayes.data.image_folder import class_folders, labelled_files
from slimbayes.data.sources import missing

__all__ = ["cifar_c_corruptions", "imagenet_c_corruptions", "load_cifar_c", "load_imagenet_c"]

SEVERITIES = 5
_IMAGES = 10_000
_LABELS = "labels.npy"
_IMAGENET_C_PLACES = ("ImageNet-C", "imagenet-c", ".")


def load_cifar_c(folder: Path, corruption: str, severity: int, classes: int = 10) -> Examples:
    """Return CIFAR's test images with one corruption; they stay in their file until they are fetched.

    Args:
        folder: Holds ``CIFAR-10-C`` or ``CIFAR-100-C``, or is it.
        corruption: The name of its file; see ``cifar_c_corruptions``.
        severity: 1 to 5.
        classes: 10 or 100.

    Shape:
        - Inputs: ``(10000, 3, 32, 32)``, uint8. Targets: ``(10000,)``, int64. In the order of CIFAR's test images.

    Raises:
        MissingData: The set is not there.
        ValueError: There is no such corruption, or a file is broken.

    Example:
        >>> fog = load_cifar_c(Path("data"), "fog", severity=3)  # doctest: +SKIP
        >>> fog.inputs[0].shape  # doctest: +SKIP
        torch.Size([10000, 3, 32, 32])
    """
    _check_severity(severity)
    place = _cifar_c_folder(folder, classes)
    check_choice("corruption", corruption, _arrays_in(place))
    images = _load(place / f"{corruption}.npy", (SEVERITIES * _IMAGES, 32, 32, 3))
    labels = _load(place / _LABELS, (SEVERITIES * _IMAGES,))
    rows = slice((severity - 1) * _IMAGES, severity * _IMAGES)
    targets = torch.from_numpy(labels[rows].astype(np.int64))
    if not 0 <= targets.min() <= targets.max() < classes:
        raise ValueError(f"{place / _LABELS} should hold labels from 0 to {classes - 1}, but has {targets.max()}.")
    return Examples((torch.from_numpy(images[rows]).permute(0, 3, 1, 2),), targets)


def cifar_c_corruptions(folder: Path, classes: int = 10) -> list[str]:
    """Return the corruptions that are there, sorted.

    Args:
        folder: Holds ``CIFAR-10-C`` or ``CIFAR-100-C``, or is it.
        classes: 10 or 100.

    Example:
        >>> cifar_c_corruptions(Path("no-such-folder"))
        Traceback (most recent call last):
            ...
        slimbayes.data.folders.MissingData: Found no CIFAR-10-C (labels.npy and others) in no-such-folder. ...
    """
    return _arrays_in(_cifar_c_folder(folder, classes))


def load_imagenet_c(
    folder: Path, corruption: str, severity: int, *, size: int = 224, classes: Sequence[str] | None = None
) -> ImageFiles:
    """Return ImageNet's validation images with one corruption, decoded when they are fetched.

    Args:
        folder: Holds ``CORRUPTION/SEVERITY/WNID/*.JPEG``, itself or in ``ImageNet-C``, there perhaps in ``noise``,
            ``blur`` and so on.
        corruption: See ``imagenet_c_corruptions``.
        severity: 1 to 5.
        size: Height and width; the files have 224, and are not cropped then.
        classes: The WNIDs in the order of the training set (``data.task.classes``); None sorts those that are there.

    Raises:
        MissingData: The set is not there.
        ValueError: There is no such corruption.

    Example:
        >>> load_imagenet_c(Path("data"), "fog", severity=3).fetch(torch.arange(2))  # doctest: +SKIP
    """
    _check_severity(severity)
    found = _imagenet_c_folders(folder)
    check_choice("corruption", corruption, found)
    place = found[corruption] / str(severity)
    return labelled_files(place, class_folders(place) if classes is None else classes, (3, size, size))


def imagenet_c_corruptions(folder: Path) -> list[str]:
    """Return the corruptions that are there, sorted.

    Args:
        folder: See ``load_imagenet_c``.

    Example:
        >>> imagenet_c_corruptions(Path("no-such-folder"))
        Traceback (most recent call last):
            ...
        slimbayes.data.folders.MissingData: Found no ImageNet-C (CORRUPTION/SEVERITY/WNID/*.JPEG) in no-such-folder. ...
    """
    return sorted(_imagenet_c_folders(folder))


def _check_severity(severity: int) -> None:
    check_count("severity", severity)
    if severity > SEVERITIES:
        raise ValueError(f"Expected argument `severity` to be at most {SEVERITIES}, but got {severity}.")


def _cifar_c_folder(folder: Path, classes: int) -> Path:
    if classes not in (10, 100):
        raise ValueError(f"Expected argument `classes` to be 10 or 100, but got {classes!r}.")
    title, name = f"CIFAR-{classes}-C", f"cifar{classes}_c"
    for place in (folder / title, folder):
        if (place / _LABELS).is_file():
            return place
    raise missing(name, f"{title} ({_LABELS} and others) in {folder}")


def _arrays_in(place: Path) -> list[str]:
    return sorted(path.stem for path in place.glob("*.npy") if path.name != _LABELS)


def _load(path: Path, shape: tuple[int, ...]) -> NDArray[Any]:
    try:
        # Copy on write: torch warns about arrays that it must not write to, and the file stays as it is.
        array = np.load(path, mmap_mode="c", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path} is truncated, or no .npy file of plain numbers. Fetch it again.") from error
    if array.shape != shape or array.dtype.kind not in "iu" or (len(shape) > 1 and array.dtype != np.uint8):
        raise ValueError(f"{path} should hold integers of shape {shape}, but holds {array.dtype} of {array.shape}.")
    return array


def _imagenet_c_folders(folder: Path) -> dict[str, Path]:
    for place in _IMAGENET_C_PLACES:
        ones = [*(folder / place).glob("*/1"), *(folder / place).glob("*/*/1")]
        if found := {one.parent.name: one.parent for one in ones if one.is_dir()}:
            return found
    raise MissingData(
        f"Found no ImageNet-C (CORRUPTION/SEVERITY/WNID/*.JPEG) in {folder}. Fetch it from "
        "https://zenodo.org/records/2235448, unpack it to ImageNet-C there, and name the folder by --data-dir or "
        "SLIMBAYES_DATA."
    )
