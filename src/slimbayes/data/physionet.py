"""PhysioNet/Computing in Cardiology Challenge 2012: deaths in hospital from the first 48 hours in intensive care."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slimbayes._checks import check_choice
from slimbayes.data._physionet_records import CONTEXT, VARIABLES, find_set, read_outcomes, read_records
from slimbayes.data.dataset import DataSet, Examples, ExampleSource, Rows, Task
from slimbayes.data.events import EventExamples, EventPreparation, Records, Scaling
from slimbayes.data.preparation import Preparation, Raw, register_preparation
from slimbayes.data.sources import missing
from slimbayes.data.splits import Split, split_rows

__all__ = ["PhysionetEvents", "PhysionetHourly", "load_physionet2012"]

_HOURS = 48


def load_physionet2012(
    folder: Path,
    *,
    view: str = "hourly",
    sets: Sequence[str] = ("a",),
    validation: int | float = 0.2,
    test: int | float = 0.2,
    seed: int = 0,
) -> DataSet:
    """Load the challenge's patients: 4,000 in each of the sets a, b and c, of whom about 14% die.

    Args:
        folder: Holds ``physionet2012`` with ``set-a`` (a folder, ``.tar.gz`` or ``.zip``), ``Outcomes-a.txt`` and so
            on, or holds them itself.
        view: ``"hourly"``: 48 hourly means of each of the 37 series; see ``PhysionetHourly``. ``"events"``: the
            irregular events themselves; see ``PhysionetEvents``.
        sets: Sets to train and validate on. Set b is for the test, or else set c, unless it is named here.
        validation: How many of these patients to choose on: a number, or a fraction.
        test: How many of them to test on, if no set is left for that.
        seed: Of the split.

    Raises:
        MissingData: Files are not there.
        ValueError: A file is broken, or an argument makes no sense.

    Example:
        >>> load_physionet2012(Path("no-such-folder"))
        Traceback (most recent call last):
            ...
        slimbayes.data.folders.MissingData: Found no set-a with Outcomes-a.txt ...
    """
    check_choice("view", view, ("hourly", "events"))
    sets = list(dict.fromkeys(sets))
    if not sets:
        raise ValueError("Expected argument `sets` to name some of 'a', 'b' and 'c', but got none.")
    for one in sets:
        check_choice("sets", one, ("a", "b", "c"))
    root = folder / "physionet2012" if (folder / "physionet2012").is_dir() else folder
    left = [one for one in ("b", "c") if one not in sets and _is_there(root, one)][:1]
    targets, records = _read_sets(root, [*sets, *left])
    held_out = len(_read_outcomes(root, left[0])) if left else 0
    rows = split_rows(len(targets) - held_out, validation, 0 if left else test, seed)
    if left:
        rows = rows._replace(test=torch.arange(len(targets) - held_out, len(targets)))
    source, preparation, task = (_hourly if view == "hourly" else _events)(records, targets, rows)
    parts = [Rows(source, part) if len(part) else None for part in rows]
    assert parts[0] is not None
    return DataSet("physionet2012", parts[0], parts[1], parts[2], task, preparation)


def _is_there(root: Path, one: str) -> bool:
    return find_set(root, f"set-{one}") is not None and (root / f"Outcomes-{one}.txt").is_file()


def _read_outcomes(root: Path, one: str) -> dict[str, float]:
    return read_outcomes(root / f"Outcomes-{one}.txt")


def _read_sets(root: Path, sets: Sequence[str]) -> tuple[Tensor, Records]:
    """Return the targets and the records of some sets, one set after the other."""
    targets, records = [], []
    for one in sets:
        place = find_set(root, f"set-{one}")
        if place is None or not _is_there(root, one):
            raise missing("physionet2012", f"set-{one} with Outcomes-{one}.txt in {root}")
        outcomes = _read_outcomes(root, one)
        names, found = read_records(place)
        if wrong := sorted(outcomes.keys() ^ set(names)):
            lacking = "no outcome" if wrong[0] not in outcomes else "no record"
            raise ValueError(
                f"{place} and Outcomes-{one}.txt do not belong together: {len(wrong)} patients are in one only; "
                f"{wrong[0]} has {lacking}. Fetch both again."
            )
        targets += [outcomes[name] for name in names]
        records.append(found)
    return torch.tensor(targets), Records.joined(records)


def _task(shape: tuple[int, ...], vocabulary: int | None = None, context: int = 0) -> Task:
    return Task("bernoulli", 1, shape, classes=("survived", "died"), vocabulary=vocabulary, context=context)


# ---------------------------------------------------------------------- hours


def _hourly(records: Records, targets: Tensor, rows: Split) -> tuple[ExampleSource, Preparation, Task]:
    hours = hourly_means(records)
    train = hours[rows.train].flatten(0, 1)
    preparation = PhysionetHourly(
        Scaling.of_columns(train).parts, Scaling.of_columns(records.context[rows.train]).parts
    )
    task = _task((_HOURS, 2 * len(VARIABLES) + len(CONTEXT)))
    return Examples((hours, records.context), targets), preparation, task


def hourly_means(records: Records) -> Tensor:
    """Return ``(n, 48, 37)``: the mean of each variable in each hour, NaN where it was not observed.

    An observation at the very end, 48:00, belongs to the last hour.
    """
    shape = (len(records), _HOURS, len(VARIABLES))
    hour = records.times.long().clamp(0, _HOURS - 1)
    cell = ((records.owners() * _HOURS + hour) * len(VARIABLES) + records.variables.long() - 1).numpy()
    size = int(np.prod(shape))
    sums = np.bincount(cell, records.values.double().numpy(), size)
    counts = np.bincount(cell, minlength=size)
    means = np.divide(sums, counts, out=np.full(size, np.nan), where=counts > 0)
    return torch.from_numpy(means.astype(np.float32).reshape(shape))


@register_preparation
class PhysionetHourly(Preparation):
    """Makes features of hourly means: standardised, carried forward, with what was observed and the context.

    Before a variable is first observed it has its training mean, which is 0.

    Args:
        values: How the 37 variables are scaled: the arguments of ``Scaling``.
        context: How the context's columns are scaled.

    Shape:
        - Raw: ``(batch, 48, 37)``, NaN where nothing was observed, and ``(batch, 8)``. Result: ``(batch, 48, 82)``:
          37 values, 37 indicators of an observation in that very hour, 8 columns of context.

    Example:
        >>> scale = lambda count: Scaling([0.0] * count, [9.0] * count, [1.0] * count, [2.0] * count).parts
        >>> hours = torch.full((1, 48, 37), float("nan"))
        >>> hours[0, 1, 0] = 5.0
        >>> (features,) = PhysionetHourly(scale(37), scale(8))(hours, torch.zeros(1, 8))
        >>> features[0, :3, 0], features[0, :3, 37]
        (tensor([0., 2., 2.]), tensor([0., 1., 0.]))
    """

    kind = "physionet_hourly"

    def __init__(self, values: dict[str, list[float]], context: dict[str, list[float]]) -> None:
        self.values, self.context = Scaling(**values), Scaling(**context)

    def __call__(self, *raw: Tensor) -> tuple[Tensor, ...]:
        """Return the features."""
        hours, context = raw
        observed = ~hours.isnan()
        steps = torch.arange(hours.shape[1], device=hours.device).view(1, -1, 1)
        latest = torch.where(observed, steps, 0).cummax(1).values
        carried = self.values(hours.gather(1, latest))
        repeated = self.context(context).unsqueeze(1).expand(-1, hours.shape[1], -1)
        return (torch.cat([carried, observed.to(carried.dtype), repeated], -1),)

    def spec(self) -> dict[str, Any]:  # noqa: D102
        return {"kind": self.kind, "values": self.values.parts, "context": self.context.parts}

    def read(self, path: Path) -> Raw:
        """Read a folder of the challenge's record files, an archive of them, or one."""
        names, records = read_records(path)
        return Raw((hourly_means(records), records.context), names)


# ---------------------------------------------------------------------- events


def _events(records: Records, targets: Tensor, rows: Split) -> tuple[ExampleSource, Preparation, Task]:
    preparation = PhysionetEvents(VARIABLES, *records.scalings(rows.train, len(VARIABLES)))
    task = _task((int(records.lengths[rows.train].max()),), len(VARIABLES) + 1, len(CONTEXT))
    return EventExamples(records, targets), preparation, task


@register_preparation
class PhysionetEvents(EventPreparation):
    """The challenge's events, for ``slimbayes.nets.RecordClassifier``; see ``EventPreparation``."""

    kind = "physionet_events"

    def read(self, path: Path) -> Raw:
        """Read a folder of the challenge's record files, an archive of them, or one."""
        names, records = read_records(path)
        return Raw(records.padded(torch.arange(len(records))), names)
