"""Data sets that ship inside scikit-learn: they need no files and no network."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from slimbayes.data._standardise import Standardised, standardised_targets
from slimbayes.data.dataset import DataSet, Task
from slimbayes.data.splits import split_examples, split_rows


def load_digits_set(
    folder: Path, *, validation: int | float = 297, test: int | float = 500, seed: int | None = None
) -> DataSet:
    """Load the 1,797 handwritten digits, images ``(1, 8, 8)`` from 0 to 1.

    Args:
        folder: Not looked at.
        validation: Count, or fraction, of the images to choose on.
        test: Count or fraction to test on.
        seed: Of the split; None for the one of ``slimbayes demo``, which is shuffled too.

    Example:
        >>> data = load_digits_set(Path())
        >>> len(data.train), len(data.validation), len(data.test)
        (1000, 297, 500)
    """
    from slimbayes.data.digits import load_digits

    digits = load_digits()
    parts = zip(digits.train, digits.validation, digits.test, strict=True)
    images, labels = (torch.cat(part) for part in parts)
    rows = split_rows(len(labels), validation, test, seed, classes=None if seed is None else labels)
    task = Task("categorical", 10, (1, 8, 8), classes=tuple(map(str, range(10))))
    return DataSet("digits", *split_examples((images,), labels, rows), task)


def load_iris(folder: Path, *, validation: int | float = 0.1, test: int | float = 0.2, seed: int | None = 0) -> DataSet:
    """Load 150 iris flowers: 4 measures, 3 species.

    Args:
        folder: Not looked at.
        validation: Count, or fraction, of the rows to choose on.
        test: Count or fraction to test on.
        seed: Of the split, which is stratified.

    Example:
        >>> data = load_iris(Path())
        >>> len(data.train), data.task.classes
        (105, ('setosa', 'versicolor', 'virginica'))
    """
    return _classes("iris", validation, test, seed)


def load_wine(folder: Path, *, validation: int | float = 0.1, test: int | float = 0.2, seed: int | None = 0) -> DataSet:
    """Load 178 wines: 13 measures, 3 growers.

    Args:
        folder: Not looked at.
        validation: Count, or fraction, of the rows to choose on.
        test: Count or fraction to test on.
        seed: Of the split, which is stratified.

    Example:
        >>> load_wine(Path()).task.input_shape
        (13,)
    """
    return _classes("wine", validation, test, seed)


def load_breast_cancer(
    folder: Path, *, validation: int | float = 0.1, test: int | float = 0.2, seed: int | None = 0
) -> DataSet:
    """Load 569 tumours: 30 measures, malignant or benign.

    Args:
        folder: Not looked at.
        validation: Count, or fraction, of the rows to choose on.
        test: Count or fraction to test on.
        seed: Of the split, which is stratified.

    Example:
        >>> load_breast_cancer(Path()).task.classes
        ('malignant', 'benign')
    """
    return _classes("breast_cancer", validation, test, seed)


def load_diabetes(
    folder: Path, *, validation: int | float = 0.1, test: int | float = 0.2, seed: int | None = 0
) -> DataSet:
    """Load 442 patients: 10 measures, and the progression of their diabetes.

    Args:
        folder: Not looked at.
        validation: Count, or fraction, of the rows to choose on.
        test: Count or fraction to test on.
        seed: Of the split.

    Example:
        >>> load_diabetes(Path()).task.likelihood
        'gaussian'
    """
    bunch = _bunch("diabetes", scaled=False)  # scikit-learn would scale by the statistics of the test rows too
    rows = split_rows(len(bunch.target), validation, test, seed)
    targets, mean, std = standardised_targets(bunch.target, rows.train)
    task = Task("gaussian", 1, bunch.data.shape[1:], target_mean=mean, target_std=std)
    inputs = torch.from_numpy(bunch.data)
    preparation = Standardised.by(bunch.data[rows.train.numpy()])
    return DataSet("diabetes", *split_examples((inputs,), targets, rows), task, preparation)


def _classes(name: str, validation: int | float, test: int | float, seed: int | None) -> DataSet:
    bunch = _bunch(name)
    targets = torch.from_numpy(bunch.target.astype(np.int64))
    rows = split_rows(len(targets), validation, test, seed, classes=targets)
    names = tuple(map(str, bunch.target_names))
    task = Task("categorical", len(names), bunch.data.shape[1:], classes=names)
    inputs = torch.from_numpy(bunch.data)
    preparation = Standardised.by(bunch.data[rows.train.numpy()])
    return DataSet(name, *split_examples((inputs,), targets, rows), task, preparation)


def _bunch(name: str, **options: Any) -> Any:
    try:
        import sklearn.datasets
    except ImportError as error:
        raise ImportError(f'The data set {name} is scikit-learn\'s: pip install "slimbayes[sklearn]"') from error
    return getattr(sklearn.datasets, f"load_{name}")(**options)
