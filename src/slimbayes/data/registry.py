"""Every data set by name."""

import inspect
import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from slimbayes._checks import check_choice
from slimbayes.data.folders import data_folder

if TYPE_CHECKING:  # `slimbayes data list` reads the names without waiting for torch
    from slimbayes.data.dataset import DataSet

__all__ = ["SETS", "load_data"]


class Entry(NamedTuple):
    """Where a set's loader is and what the set is.

    Attributes:
        loader: ``module:function`` below ``slimbayes.data``; called with the data folder and options.
        title: One line.
    """

    loader: str
    title: str


#: By name; modules are imported when a set is asked for.
SETS: dict[str, Entry] = {
    "digits": Entry("_bundled:load_digits_set", "8x8 handwritten digits, inside scikit-learn: no files needed"),
    "iris": Entry("_bundled:load_iris", "iris flowers, inside scikit-learn"),
    "wine": Entry("_bundled:load_wine", "wines, inside scikit-learn"),
    "breast_cancer": Entry("_bundled:load_breast_cancer", "breast cancer (Wisconsin), inside scikit-learn"),
    "diabetes": Entry("_bundled:load_diabetes", "diabetes progression, a regression, inside scikit-learn"),
    "mnist": Entry("_mnist_set:load_mnist_set", "MNIST, 28x28 digits"),
    "fashion_mnist": Entry("_mnist_set:load_fashion_mnist_set", "Fashion-MNIST, 28x28 clothes"),
    "cifar10": Entry("cifar:load_cifar10", "CIFAR-10, 32x32 colour images of 10 classes (binary version)"),
    "cifar100": Entry("cifar:load_cifar100", "CIFAR-100, 32x32 colour images of 100 classes (binary version)"),
    "imagenet": Entry("image_folder:load_imagenet", "ImageNet (ILSVRC 2012), folders of images"),
    "image_folder": Entry("image_folder:load_image_folder", "any images, one folder for each class"),
    "imdb": Entry("imdb:load_imdb", "IMDB film reviews, positive or negative"),
    "physionet2012": Entry("physionet:load_physionet2012", "PhysioNet 2012: deaths in intensive care, from 48 hours"),
    "mimic3": Entry("mimic:load_mimic3", "MIMIC-III: deaths in hospital, from its CSV tables"),
    "uci": Entry("uci:load_uci", "UCI regression sets with their standard splits: set: boston, split: 0"),
    "table": Entry("table:load_table", "any CSV or Parquet file with a header: path: ..., target: ..."),
    "arrays": Entry("arrays:load_arrays", "NumPy arrays x_train, y_train, ... in an .npz file: path: ..."),
}


def load_data(name: str, folder: str | os.PathLike[str] | None = None, **options: Any) -> "DataSet":
    """Load a data set.

    Args:
        name: One of ``SETS``.
        folder: The data folder; see ``data_folder``.
        **options: The loader's own; an unknown one is an error that names the nearest.

    Example:
        >>> data = load_data("digits")
        >>> len(data.train), data.task.outputs
        (1000, 10)
    """
    check_choice("data.name", name, SETS)
    loader = loader_of(name)
    known = _options(loader)
    for option, value in options.items():
        check_choice("data", option, known)
        if known[option].annotation is bool and not isinstance(value, bool):
            raise ValueError(f"Expected argument `data.{option}` to be true or false, but got {value!r}.")
    for option, parameter in known.items():
        if parameter.default is parameter.empty and option not in options:
            raise ValueError(f"Expected argument `data.{option}`, which {name} needs: {SETS[name].title}.")
    return loader(data_folder(folder), **options)


def loader_of(name: str) -> "Callable[..., DataSet]":
    """Return the function that loads a set."""
    module, _, function = SETS[name].loader.partition(":")
    return getattr(import_module(f"slimbayes.data.{module}"), function)


def _options(loader: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    _, *options = inspect.signature(loader).parameters.values()
    return {option.name: option for option in options}
