"""What a model is evaluated on: the test examples as they are, and with each corruption or shift of each severity."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from slimbayes._checks import check_choice, check_count
from slimbayes.data import digits
from slimbayes.data.dataset import Batch, DataSet, ExampleSource
from slimbayes.data.folders import data_folder
from slimbayes.data.preparation import Preparation
from slimbayes.evaluation._official_corruptions import OfficialFiles, official_files
from slimbayes.shifts._choose import shifts_for
from slimbayes.shifts.corruptions import COMMON, EXTRA, corrupt
from slimbayes.shifts.shift import Inputs, Shift, check_severity

__all__ = ["Change", "Condition", "conditions", "corruption_source", "evaluated_part"]

#: Changes the inputs of some examples; the second argument is their row numbers.
Change = Callable[[Inputs, Tensor], Inputs]

_WAYS = ("auto", "own", "official", "none")


@dataclass(frozen=True)
class Condition:
    """Prepared examples under one condition; a block is made when it is fetched, and nothing else is kept.

    Args:
        name: ``"clean"``, or what is done to the examples.
        severity: 1 to 5; 0 for clean.
        raw: The raw examples.
        preparation: Turns raw inputs into the network's.
        size: How many of the first examples count.
        before: Changes raw inputs, or None.
        after: Changes prepared inputs, or None.

    Example:
        >>> from slimbayes.data import load_data
        >>> clean = conditions(load_data("iris"))[0]
        >>> (x,), y = clean.fetch(torch.arange(2))
        >>> clean.name, clean.severity, len(clean), x.shape
        ('clean', 0, 30, torch.Size([2, 4]))
    """

    name: str
    severity: int
    raw: ExampleSource
    preparation: Preparation
    size: int
    before: Change | None = None
    after: Change | None = None

    def __len__(self) -> int:
        return self.size

    def fetch(self, rows: Tensor) -> Batch:
        """Return the network's inputs and the targets of these rows; ``rows`` is a tensor of integers."""
        inputs, targets = self.raw.fetch(rows)
        if self.before is not None:
            inputs = self.before(inputs, rows)
        prepared = self.preparation(*inputs)
        return (prepared if self.after is None else self.after(prepared, rows)), targets


def conditions(
    data: DataSet,
    *,
    folder: str | os.PathLike[str] | None = None,
    corruptions: Literal["auto", "own", "official", "none"] | Sequence[str] = "auto",
    extra: bool = False,
    severities: Sequence[int] = (1, 2, 3, 4, 5),
    seed: int = 0,
    limit: int | None = None,
    shifted_limit: int | None = None,
) -> list[Condition]:
    """Return the conditions to evaluate on, the clean one first.

    Images are corrupted as uint8, before their preparation; other inputs are shifted after it, see
    ``slimbayes.shifts``. Random numbers belong to each example, whatever block it is fetched in.

    Args:
        data: Its test part is used, or if there is none the validation part.
        folder: The data folder, in which the official corrupted images are looked for; see ``data_folder``.
        corruptions: ``"own"``: ours. ``"official"``: the files of CIFAR-10-C, CIFAR-100-C or ImageNet-C. ``"auto"``:
            the official files if all that are wanted are there, otherwise ours. ``"none"``: only clean. Or a list of
            names, official or ours as for ``"auto"``.
        extra: Whether images get the four extra corruptions besides the 15 common ones.
        severities: Some of 1 to 5.
        seed: Of the random numbers.
        limit: How many of the first examples to use; None for all.
        shifted_limit: How many of them to corrupt; None for all of them.

    Raises:
        MissingData: ``"official"`` is asked for, but the files are not there.
        ImportError: Frost is asked for without the package of its photographs.

    Example:
        >>> from slimbayes.data import load_data
        >>> found = conditions(load_data("iris"), corruptions=["noise"], severities=[1, 5])
        >>> [(one.name, one.severity) for one in found]
        [('clean', 0), ('noise', 1), ('noise', 5)]
    """
    part = evaluated_part(data)
    for argument, count in (("limit", limit), ("shifted_limit", shifted_limit)):
        if count is not None:
            check_count(argument, count)
    for severity in severities:
        check_severity("severities", severity)
    clean = Condition("clean", 0, part, data.preparation, min(len(part), limit or len(part)))
    if isinstance(corruptions, str):
        check_choice("corruptions", corruptions, _WAYS)
    if corruptions == "none":
        return [clean]
    every, clean = clean, replace(clean, size=min(len(clean), shifted_limit or len(clean)))
    if data.preparation.kind == "images":
        make = _images(data, clean, folder, corruptions, extra, seed)
    elif corruptions == "official":
        raise ValueError(
            f"Expected argument `corruptions` to be 'auto', 'own' or 'none' for {data.name}, but got 'official': only "
            "CIFAR-10, CIFAR-100 and ImageNet have official corrupted images."
        )
    elif data.name == "digits":
        make = {name: partial(_digits, clean, name, seed) for name in digits.CORRUPTIONS}
    else:
        make = {name: partial(_shifted, clean, shift, seed) for name, shift in shifts_for(data).items()}
    names = list(make) if isinstance(corruptions, str) else list(corruptions)
    for name in names:
        check_choice("corruptions", name, make)
    return [every, *(make[name](severity) for name in names for severity in severities)]


def evaluated_part(data: DataSet) -> ExampleSource:
    """Return the test examples of a data set, or those for validation if there are none.

    Raises:
        ValueError: There are neither.
    """
    for part in (data.test, data.validation):
        if part is not None and len(part):
            return part
    raise ValueError(f"{data.name} has no test and no validation examples to evaluate on. Set some aside.")


def corruption_source(
    data: DataSet,
    corruptions: str | Sequence[str],
    folder: str | os.PathLike[str] | None = None,
    *,
    extra: bool = False,
) -> str:
    """Return where ``conditions`` takes corruptions or shifts from: ``"own"``, ``"official"`` or ``"none"``.

    Example:
        >>> from slimbayes.data import load_data
        >>> corruption_source(load_data("iris"), "auto")
        'own'
    """
    if corruptions == "none" or not corruptions:
        return "none"
    if data.preparation.kind == "images":
        return "own" if _official_files(data, folder, corruptions, extra) is None else "official"
    return "own" if data.name == "digits" or shifts_for(data) else "none"


def _wanted(corruptions: str | Sequence[str], extra: bool) -> list[str]:
    if not isinstance(corruptions, str):
        return list(corruptions)
    return [*COMMON, *EXTRA] if extra else list(COMMON)


def _official_files(
    data: DataSet, folder: str | os.PathLike[str] | None, corruptions: str | Sequence[str], extra: bool
) -> OfficialFiles | None:
    if corruptions == "own":
        return None
    wanted = _wanted(corruptions, extra)
    return official_files(data, data_folder(folder), wanted, must_be_there=corruptions == "official")


def _images(
    data: DataSet,
    clean: Condition,
    folder: str | os.PathLike[str] | None,
    corruptions: str | Sequence[str],
    extra: bool,
    seed: int,
) -> dict[str, Callable[[int], Condition]]:
    wanted = _wanted(corruptions, extra)
    if files := _official_files(data, folder, corruptions, extra):
        return {name: partial(_official, clean, files, name) for name in wanted}
    for name in wanted:
        check_choice("corruptions", name, [*COMMON, *EXTRA])
        # A package may be missing, or images may not be square: fail now, not after an hour.
        _corrupted(clean, name, seed, 1).fetch(torch.arange(1))
    return {name: partial(_corrupted, clean, name, seed) for name in wanted}


def _corrupted(clean: Condition, name: str, seed: int, severity: int) -> Condition:
    def change(inputs: Inputs, rows: Tensor) -> Inputs:
        return (corrupt(inputs[0], name, severity, seed=seed, numbers=rows),)

    return replace(clean, name=name, severity=severity, before=change)


def _official(clean: Condition, files: OfficialFiles, name: str, severity: int) -> Condition:
    return replace(clean, name=name, severity=severity, raw=files.source(name, severity, len(clean)))


def _digits(clean: Condition, name: str, seed: int, severity: int) -> Condition:
    def change(inputs: Inputs, rows: Tensor) -> Inputs:
        # The demo draws for all images at once. They are 500 of 64 pixels, so each block draws for all of them again.
        (images,), _ = clean.raw.fetch(torch.arange(len(clean.raw)))
        generator = torch.Generator().manual_seed(severity + 10 * seed)
        return (digits.CORRUPTIONS[name](images, severity, generator)[rows],)

    return replace(clean, name=name, severity=severity, before=change)


def _shifted(clean: Condition, shift: Shift, seed: int, severity: int) -> Condition:
    def change(inputs: Inputs, rows: Tensor) -> Inputs:
        return shift(inputs, severity, seed=seed, numbers=rows)

    return replace(clean, name=shift.name, severity=severity, after=change)
