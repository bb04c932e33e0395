"""The official corrupted images of CIFAR-10, CIFAR-100 and ImageNet: files opened when needed, one at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slimbayes._checks import check_choice
from slimbayes.data.corrupted import cifar_c_corruptions, imagenet_c_corruptions, load_cifar_c, load_imagenet_c
from slimbayes.data.dataset import Batch, DataSet, ExampleSource, Rows
from slimbayes.data.folders import MissingData

#: A fixed order for ImageNet-C, whose files are sorted by class, so that the first few are of many classes.
_ORDER_SEED = 0


@dataclass
class OfficialFiles:
    """Opens the examples of a corruption and severity; the last ones opened are kept.

    A mapped file counts as memory of the process while it is mapped, and 75 of them would fill it.

    Args:
        load: Takes a name and a severity.
        shuffled: Whether to put the examples into a fixed random order.
    """

    load: Callable[[str, int], ExampleSource]
    shuffled: bool = False
    _last: tuple[tuple[str, int], ExampleSource] | None = field(default=None, repr=False)

    def opened(self, name: str, severity: int) -> ExampleSource:
        """Return the examples."""
        if self._last is None or self._last[0] != (name, severity):
            self._last = None
            examples = self.load(name, severity)
            if self.shuffled:
                order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(_ORDER_SEED))
                examples = Rows(examples, order)
            self._last = (name, severity), examples
        return self._last[1]

    def source(self, name: str, severity: int, count: int) -> "OfficialSource":
        """Return the first examples of a corruption and severity; nothing is read yet."""
        return OfficialSource(self, name, severity, count)


@dataclass(frozen=True)
class OfficialSource:
    """Examples of one corruption and severity.

    Args:
        files: Where they come from.
        name: Of the corruption.
        severity: 1 to 5.
        count: How many of the first ones.
    """

    files: OfficialFiles
    name: str
    severity: int
    count: int

    def __len__(self) -> int:
        return self.count

    def fetch(self, rows: Tensor) -> Batch:
        """Return the raw inputs and the targets of these rows."""
        return self.files.opened(self.name, self.severity).fetch(rows)


def official_files(
    data: DataSet, folder: Path, wanted: Sequence[str], *, must_be_there: bool = False
) -> OfficialFiles | None:
    """Return the official files of a data set's corruptions, or None if they are not all there.

    Args:
        data: A set of images.
        folder: The data folder.
        wanted: Names of corruptions.
        must_be_there: Raise instead of returning None.

    Raises:
        MissingData: Files are not there.
        ValueError: The set has no official corruptions.
    """
    try:
        found, files = _find(data, folder)
        if lacking := [name for name in wanted if name not in found]:
            raise MissingData(
                f"{folder} has official corruptions of {data.name}, but lacks {', '.join(lacking)}. Fetch them, name "
                "those that are there by `corruptions`, or make all by corruptions='own'."
            )
    except (MissingData, ValueError):
        if must_be_there:
            raise
        return None
    return files


def _find(data: DataSet, folder: Path) -> tuple[list[str], OfficialFiles]:
    check_choice("corruptions='official': the data set", data.name, ("cifar10", "cifar100", "imagenet"))
    if data.name == "imagenet":
        preparation: Any = data.preparation

        def load(name: str, severity: int) -> ExampleSource:
            return load_imagenet_c(folder, name, severity, size=preparation.size[0], classes=data.task.classes)

        return imagenet_c_corruptions(folder), OfficialFiles(load, shuffled=True)
    classes = int(data.name.removeprefix("cifar"))
    return cifar_c_corruptions(folder, classes), OfficialFiles(
        lambda name, severity: load_cifar_c(folder, name, severity, classes)
    )
