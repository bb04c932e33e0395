"""MNIST and Fashion-MNIST as data sets to train on."""

from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from slimbayes.data.dataset import DataSet, Examples
from slimbayes.data.images import image_set, named_preparation
from slimbayes.data.mnist import load_mnist

_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


def load_mnist_set(folder: Path, *, validation: int | float = 10_000, normalise: str = "symmetric") -> DataSet:
    """Load MNIST as the k-tied paper does: values from -1 to 1, the last 10,000 training images for validation.

    Args:
        folder: The data folder; see ``load_mnist``.
        validation: How many of the last training images validate, or which part of them; 0 for none.
        normalise: ``"symmetric"`` (-1 to 1), ``"unit"`` (0 to 1), or ``"standard"`` (mean 0 and variance 1).

    Shape:
        - Raw inputs: ``(n, 1, 28, 28)``, uint8. Targets: ``(n,)``, int64.

    Raises:
        MissingData: The files are not there.
        ValueError: A file is broken.

    Example:
        >>> data = load_mnist_set(Path("data"))  # doctest: +SKIP
        >>> len(data.train), len(data.validation), len(data.test)  # doctest: +SKIP
        (50000, 10000, 10000)
    """
    constants = ([0.1307], [0.3081])
    return _load(folder, "mnist", "MNIST", tuple("0123456789"), validation, normalise, constants)


def load_fashion_mnist_set(folder: Path, *, validation: int | float = 10_000, normalise: str = "symmetric") -> DataSet:
    """Load Fashion-MNIST, split and scaled as ``load_mnist_set`` does.

    Args:
        folder: The data folder; see ``load_mnist``.
        validation: How many of the last training images validate, or which part of them; 0 for none.
        normalise: ``"symmetric"`` (-1 to 1), ``"unit"`` (0 to 1), or ``"standard"`` (mean 0 and variance 1).

    Example:
        >>> load_fashion_mnist_set(Path("data")).task.classes[9]  # doctest: +SKIP
        'Ankle boot'
    """
    return _load(folder, "fashion_mnist", "Fashion-MNIST", _CLOTHES, validation, normalise, ([0.2860], [0.3530]))


def _load(
    folder: Path,
    name: str,
    kind: str,
    classes: tuple[str, ...],
    validation: int | float,
    normalise: str,
    constants: tuple[list[float], list[float]],
) -> DataSet:
    arrays = load_mnist(folder, kind)
    train = _examples(arrays.train_images, arrays.train_labels)
    test = _examples(arrays.test_images, arrays.test_labels)
    preparation = named_preparation(normalise, train.inputs[0].shape[1:], {"standard": constants})
    return image_set(name, train, test, classes, validation, preparation)


def _examples(images: NDArray[Any], labels: NDArray[Any]) -> Examples:
    return Examples((torch.from_numpy(images).unsqueeze(1),), torch.from_numpy(labels).long())
