"""The UCI regression sets with the standard splits of Hernández-Lobato and Adams (2015), from Gal's files."""

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from slimbayes._checks import check_choice, check_count
from slimbayes.data._standardise import Standardised, standardised_targets
from slimbayes.data.dataset import DataSet, Task
from slimbayes.data.sources import missing
from slimbayes.data.splits import Split, split_examples, split_rows

__all__ = ["UCI_SETS", "load_uci"]

#: Short names, and the publisher's folders.
UCI_SETS = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "kin8nm": "kin8nm",
    "naval": "naval-propulsion-plant",
    "power": "power-plant",
    "protein": "protein-tertiary-structure",
    "wine": "wine-quality-red",
    "yacht": "yacht",
}


def load_uci(
    folder: Path, *, set: str = "boston", split: int = 0, validation: int | float = 0.1, seed: int = 0
) -> DataSet:
    """Load one split of one set; inputs and target are standardised by the rows that are trained on.

    Args:
        folder: Holds ``bostonHousing/data/data.txt`` and so on, itself or in ``uci`` or ``UCI_Datasets``.
        set: One of ``UCI_SETS``.
        split: Number of the split, from 0: 20 for each set, 5 for protein.
        validation: Count, or fraction, of the split's training rows to choose on; 0 for none.
        seed: Of choosing those.

    Raises:
        MissingData: A file is missing.
        ValueError: A file is broken.

    Example:
        >>> load_uci(Path("no-such-folder"), set="yacht")
        Traceback (most recent call last):
            ...
        slimbayes.data.folders.MissingData: Found no yacht/data/data.txt in no-such-folder or ...
    """
    check_choice("set", set, UCI_SETS)
    check_count("split", split, minimum=0)
    place = _find(folder, UCI_SETS[set])
    count = int(_numbers(place / "n_splits.txt").item())
    if split >= count:
        raise ValueError(f"Expected argument `split` to be below {count}, the splits of {set}, but got {split}.")
    table = _numbers(place / "data.txt", dimensions=2)
    features = _indices(place / "index_features.txt", table.shape[1])
    (target,) = _indices(place / "index_target.txt", table.shape[1])
    given = _indices(place / f"index_train_{split}.txt", len(table))
    test = _indices(place / f"index_test_{split}.txt", len(table))
    if np.intersect1d(given, test).size:
        raise ValueError(f"{place}: training and test rows of split {split} overlap. Fetch the files again.")

    inner = split_rows(len(given), validation, seed=seed)
    train, chosen = (torch.from_numpy(given[part.numpy()]) for part in inner[:2])
    rows = Split(train, chosen, torch.from_numpy(test))
    targets, mean, std = standardised_targets(table[:, target], rows.train)
    inputs = table[:, features]
    task = Task("gaussian", 1, (len(features),), target_mean=mean, target_std=std)
    parts = split_examples((torch.from_numpy(inputs),), targets, rows)
    return DataSet("uci", *parts, task, Standardised.by(inputs[rows.train.numpy()]))


def _find(folder: Path, name: str) -> Path:
    places = [folder / sub / name / "data" for sub in ("uci", "UCI_Datasets", ".")]
    for place in places:
        if (place / "data.txt").is_file():
            return place
    raise missing("uci", f"{name}/data/data.txt in {folder} or its sub-folders uci and UCI_Datasets")


def _numbers(path: Path, dimensions: Literal[1, 2] = 1) -> NDArray[np.float64]:
    """Return the numbers of a text file, all finite; at least one."""
    if not path.is_file():
        raise missing("uci", str(path))
    lines = path.read_text(errors="replace").splitlines()
    if not any(line.strip() for line in lines):
        raise ValueError(f"{path} is empty. Fetch it again.")
    try:
        values = np.loadtxt(lines, ndmin=dimensions)
    except ValueError as error:
        raise ValueError(f"{path} is not a table of numbers: {error}") from error
    if not np.isfinite(values).all():
        raise ValueError(f"{path} holds a number that is not finite.")
    return values


def _indices(path: Path, count: int) -> NDArray[np.int64]:
    """Return distinct whole numbers from 0 to ``count - 1``."""
    values = _numbers(path)
    indices = values.astype(np.int64)
    wrong = (indices != values) | (indices < 0) | (indices >= count)
    if wrong.any():
        raise ValueError(f"{path} should hold whole numbers from 0 to {count - 1}, but holds {values[wrong][0]:g}.")
    if len(np.unique(indices)) != len(indices):
        raise ValueError(f"{path} holds a number twice. Fetch it again.")
    return indices
