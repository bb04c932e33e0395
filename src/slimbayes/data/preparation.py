"""How raw inputs become the network's: stored with each run, so that prediction does what training did."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from slimbayes._checks import check_choice
from slimbayes.data._numpy_files import as_tensor, load_numpy

__all__ = ["Arrays", "Preparation", "Raw", "RawBlocks", "get_preparation", "register_preparation"]


class Raw(NamedTuple):
    """Raw inputs that somebody wants predictions for.

    Attributes:
        inputs: Tensors whose first axis counts the examples.
        names: One for each example: a file name, or its number.
    """

    inputs: tuple[Tensor, ...]
    names: list[str]


class RawBlocks(NamedTuple):
    """Raw inputs that come some examples at a time.

    Attributes:
        size: How many examples there are.
        numbers: How many numbers the inputs of one have.
        blocks: Yields so many examples at a time, and the rest at last.
    """

    size: int
    numbers: int
    blocks: Callable[[int], Iterator[Raw]]


class Preparation(ABC):
    """Turns raw inputs into the network's; can be written as JSON."""

    kind: ClassVar[str]

    def __call__(self, *raw: Tensor) -> tuple[Tensor, ...]:
        """Return the network's inputs for a batch of raw ones."""
        return raw

    @abstractmethod
    def read(self, path: Path) -> Raw:
        """Read the raw inputs of a file or folder that a user wants predictions for."""

    def open(self, path: Path) -> RawBlocks:
        """Return what ``read`` would, some examples at a time; here, all are read at once."""
        inputs, names = self.read(path)

        def blocks(size: int) -> Iterator[Raw]:
            for begin in range(0, len(names), size):
                some = slice(begin, begin + size)
                yield Raw(tuple(x[some] for x in inputs), names[some])

        return RawBlocks(len(names), sum(x[:1].numel() for x in inputs), blocks)

    def spec(self) -> dict[str, Any]:
        """Return JSON values from which ``get_preparation`` rebuilds this one."""
        return {"kind": self.kind}


#: Those known so far, by kind.
PREPARATIONS: dict[str, type[Preparation]] = {}
#: The modules that make the others known.
_MODULES = {
    "images": "images",
    "mimic3": "mimic",
    "physionet_events": "physionet",
    "physionet_hourly": "physionet",
    "standardised": "_standardise",
    "table": "table",
    "text": "text",
}


def register_preparation(cls: type[Preparation]) -> type[Preparation]:
    """Make a class known to ``get_preparation``; a decorator. A spec is ``kind`` and the class's keyword arguments."""
    PREPARATIONS[cls.kind] = cls
    return cls


def get_preparation(spec: dict[str, Any]) -> Preparation:
    """Return the preparation that ``spec()`` described.

    Example:
        >>> get_preparation({"kind": "arrays"})
        Arrays()
    """
    options = dict(spec)
    kind = options.pop("kind")
    if kind not in PREPARATIONS and kind in _MODULES:
        import_module(f"slimbayes.data.{_MODULES[kind]}")
    check_choice("kind", kind, PREPARATIONS)
    return PREPARATIONS[kind](**options)


@register_preparation
class Arrays(Preparation):
    """Leaves inputs as they are; reads NumPy's .npy and .npz files.

    Example:
        >>> import torch
        >>> Arrays()(torch.ones(2))
        (tensor([1., 1.]),)
    """

    kind = "arrays"

    def __repr__(self) -> str:
        return "Arrays()"

    def read(self, path: Path) -> Raw:  # noqa: D102
        return read_arrays(path)


def read_arrays(path: Path) -> Raw:
    """Return the only array of an .npy or .npz file; of several, the one called x, or x0, x1, ... in order."""
    if path.suffix not in (".npy", ".npz"):
        raise ValueError(f"Expected {path} to be an .npy or .npz file: this run was trained on arrays.")
    arrays = load_numpy(path)
    found = {name for name in arrays if re.fullmatch("x[0-9]*", name)}
    wanted = ["x"] if found == {"x"} else [f"x{number}" for number in range(len(found))]
    if len(arrays) == 1:
        wanted = list(arrays)
    elif not found or found != set(wanted):
        raise ValueError(
            f"{path} should hold one array, or one called x, or x0, x1, and so on without a gap, but holds "
            f"{', '.join(arrays) or 'none'}."
        )
    inputs = tuple(as_tensor(path, name, arrays[name]) for name in wanted)
    if any(len(x) != len(inputs[0]) for x in inputs):
        raise ValueError(f"{path} should hold {', '.join(wanted)} with one row for each example.")
    return Raw(inputs, [str(row) for row in range(len(inputs[0]))])
