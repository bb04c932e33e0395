"""MIMIC-III v1.4: deaths in hospital, from what happened in the first hours after admission."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slimbayes._checks import check_choice, check_count, check_number
from slimbayes.data._mimic_events import TABLES, Cohort, Events, read_cohort, read_events
from slimbayes.data._mimic_tables import find_table
from slimbayes.data.dataset import DataSet, Rows, Task
from slimbayes.data.events import EventExamples, EventPreparation, Records
from slimbayes.data.preparation import Raw, register_preparation
from slimbayes.data.splits import split_rows

__all__ = ["MimicEvents", "load_mimic3"]

_SUB_FOLDERS = ("mimic3", "mimiciii", "mimic-iii", "mimic-iii-clinical-database-1.4", ".")


def load_mimic3(
    folder: Path,
    *,
    hours: float = 24.0,
    tables: Sequence[str] | None = None,
    codes: int = 100,
    tokens: int = 5_000,
    max_events: int = 2_000,
    validation: int | float = 0.1,
    test: int | float = 0.1,
    seed: int = 0,
) -> DataSet:
    """Load adult admissions: what happened until ``hours`` after admission, and whether it ended in death.

    Inputs are irregular events for ``slimbayes.nets.RecordClassifier``, which puts them into bags of a day or less.
    Statistics and the choice of variables are those of the training patients; a patient is in one part only.

    Args:
        folder: Holds ``mimic3`` (or ``mimiciii``, or the publisher's name) with the tables, ``.csv`` or ``.csv.gz``,
            or holds them itself: PATIENTS, ADMISSIONS, LABEVENTS; CHARTEVENTS and PRESCRIPTIONS if wanted.
        hours: When the prediction is made, from admission. Later events are not seen; patients who have died or left
            by then are not counted.
        tables: Some of ``"labevents"``, ``"chartevents"``, ``"prescriptions"``; None for those that are there.
        codes: Keep the numbers of so many of the most frequent measurements.
        tokens: Keep so many of the most frequent other events: rarer measurements without their numbers, findings
            in words, drugs.
        max_events: Keep the last so many of an admission.
        validation: How many patients to choose on: a number, or a fraction.
        test: How many to test on.
        seed: Of the split.

    Raises:
        MissingData: A table is not there.
        ValueError: A table is broken, or an argument makes no sense.

    Example:
        >>> load_mimic3(Path("no-such-folder"))
        Traceback (most recent call last):
            ...
        slimbayes.data.folders.MissingData: Found no PATIENTS.csv or PATIENTS.csv.gz in no-such-folder...
    """
    check_number("hours", hours, low=0.0)
    for name, count, least in (("codes", codes, 0), ("tokens", tokens, 0), ("max_events", max_events, 1)):
        check_count(name, count, least)
    root = next((folder / sub for sub in _SUB_FOLDERS if find_table(folder / sub, "ADMISSIONS")), folder)
    tables = _tables(root, tables)
    cohort = read_cohort(root, hours)
    events = read_events(root, cohort, hours, tables)
    patients, patient = np.unique(cohort.patients, return_inverse=True)
    rows = [
        torch.from_numpy(np.flatnonzero(np.isin(patient, part.numpy())))
        for part in split_rows(len(patients), validation, test, seed)
    ]
    numbered, named = _variables(events, rows[0], codes, tokens)
    records = _records(cohort, events, [*numbered, *named], max_events)
    values, context = records.scalings(rows[0], len(numbered))
    preparation = MimicEvents([*numbered, *named], values, context, hours, tables, max_events)
    longest = max(int(records.lengths[rows[0]].max()), 1)
    task = Task(
        "bernoulli",
        1,
        (longest,),
        classes=("survived", "died"),
        vocabulary=len(preparation.variables) + 1,
        context=records.context.shape[1],
    )
    source = EventExamples(records, torch.from_numpy(cohort.died).float())
    train, chosen, tested = (Rows(source, part) if len(part) else None for part in rows)
    assert train is not None
    return DataSet("mimic3", train, chosen, tested, task, preparation)


def _tables(root: Path, tables: Sequence[str] | None) -> list[str]:
    if tables is None:
        return ["labevents", *(name for name in ("chartevents", "prescriptions") if find_table(root, name))]
    for table in tables:
        check_choice("tables", table, TABLES)
    return list(dict.fromkeys(tables))


def _variables(events: Events, train: Tensor, codes: int, tokens: int) -> tuple[list[str], list[str]]:
    """Return the most frequent measurements and the most frequent other events of the training admissions."""
    of_train = np.isin(events.owners, train.numpy())
    numbered = _most_frequent(events, of_train & ~np.isnan(events.values), codes)
    numbers = [number for number, name in enumerate(events.names) if name in set(numbered)]
    return numbered, _most_frequent(events, of_train & ~np.isin(events.keys, numbers), tokens)


def _most_frequent(events: Events, chosen: NDArray[np.bool_], count: int) -> list[str]:
    counts = np.bincount(events.keys[chosen], minlength=len(events.names))
    seen = sorted((-number, name) for number, name in zip(counts.tolist(), events.names, strict=True) if number)
    return [name for _, name in seen[:count]]


def _records(cohort: Cohort, events: Events, variables: Sequence[str], max_events: int) -> Records:
    """Return the events of each admission in the order of time, with the numbers of their variables."""
    numbers = {name: number for number, name in enumerate(variables, 1)}
    variable = np.array([numbers.get(name, 0) for name in events.names], np.int32)[events.keys]
    order = np.lexsort((variable, events.hours, events.owners))
    order = order[variable[order] > 0]
    owners = events.owners[order]
    from_the_end = np.searchsorted(owners, owners, side="right") - np.arange(len(owners))
    order = order[from_the_end <= max_events]
    lengths = np.bincount(events.owners[order], minlength=len(cohort.admissions))
    return Records.of(lengths, events.hours[order], variable[order], events.values[order], cohort.context)


@register_preparation
class MimicEvents(EventPreparation):
    """The events of MIMIC-III, for ``slimbayes.nets.RecordClassifier``; see ``EventPreparation``.

    Args:
        variables: Their names.
        values: How the values of the first of them are scaled.
        context: How age and sex are scaled.
        hours: When the prediction is made, from admission.
        tables: The event tables.
        max_events: Events to keep of an admission.
    """

    kind = "mimic3"

    def __init__(
        self,
        variables: Sequence[str],
        values: dict[str, list[float]],
        context: dict[str, list[float]],
        hours: float,
        tables: Sequence[str],
        max_events: int,
    ) -> None:
        super().__init__(variables, values, context)
        self.hours, self.tables, self.max_events = hours, list(tables), max_events

    def spec(self) -> dict[str, Any]:  # noqa: D102
        return super().spec() | {"hours": self.hours, "tables": self.tables, "max_events": self.max_events}

    def read(self, path: Path) -> Raw:
        """Read a folder of tables: one example for each admission of an adult still there at the prediction."""
        cohort = read_cohort(path, self.hours)
        records = _records(cohort, read_events(path, cohort, self.hours, self.tables), self.variables, self.max_events)
        return Raw(records.padded(torch.arange(len(records))), [str(one) for one in cohort.admissions])
