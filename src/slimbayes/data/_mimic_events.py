"""Who is in the study, and what happened to them: rows of MIMIC-III's tables to events before the prediction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimbayes.data._mimic_tables import read_batches, read_table

#: The event tables, and how each begins the names of what it observes.
TABLES = {"labevents": "lab", "chartevents": "chart", "prescriptions": "drug"}

_OBSERVATION = {"HADM_ID": "int64", "ITEMID": "int64", "CHARTTIME": "timestamp[s]"}
_OBSERVATION |= {"VALUE": "string", "VALUENUM": "float64"}
_COLUMNS = {
    "labevents": _OBSERVATION,
    "chartevents": _OBSERVATION | {"ERROR": "int64"},
    "prescriptions": {"HADM_ID": "int64", "STARTDATE": "timestamp[s]", "DRUG": "string"},
}
_YEAR = np.timedelta64(31_556_952, "s")
#: Of owners, hours, keys and values: small, since there may be some ten million.
_KINDS: tuple[Any, ...] = (np.int32, np.float32, np.int32, np.float32)
_DAY = np.timedelta64(86_400, "s")


@dataclass(frozen=True)
class Cohort:
    """Admissions in rising order of their numbers: of adults who are still there when the prediction is made.

    Attributes:
        admissions: HADM_ID.
        patients: SUBJECT_ID.
        admitted: When.
        context: ``(n, 2)``: the age in years, at most 90 (older ones are disguised), and 1 for a man, 0 for a woman.
        died: 1 for a death in this hospital stay, else 0.
    """

    admissions: NDArray[np.int64]
    patients: NDArray[np.int64]
    admitted: NDArray[np.datetime64]
    context: NDArray[np.float64]
    died: NDArray[np.float64]


def read_cohort(folder: Path, hours: float) -> Cohort:
    """Read PATIENTS and ADMISSIONS.

    Whoever died or went home before the prediction is left out: nothing is to be predicted for them.
    """
    people = read_table(folder, "PATIENTS", {"SUBJECT_ID": "int64", "GENDER": "string", "DOB": "timestamp[s]"})
    times = dict.fromkeys(("ADMITTIME", "DISCHTIME", "DEATHTIME"), "timestamp[s]")
    stays = read_table(
        folder, "ADMISSIONS", {"SUBJECT_ID": "int64", "HADM_ID": "int64", "HOSPITAL_EXPIRE_FLAG": "int64", **times}
    )
    order = np.argsort(people["SUBJECT_ID"])
    person = order[np.searchsorted(people["SUBJECT_ID"], stays["SUBJECT_ID"], sorter=order).clip(max=len(order) - 1)]
    if len(unknown := stays["SUBJECT_ID"][people["SUBJECT_ID"][person] != stays["SUBJECT_ID"]]):
        raise ValueError(f"ADMISSIONS in {folder} has a SUBJECT_ID {unknown[0]} that PATIENTS lacks.")
    age = (stays["ADMITTIME"] - people["DOB"][person]) / _YEAR
    prediction = stays["ADMITTIME"] + np.timedelta64(round(hours * 3600), "s")
    left = np.fmin(stays["DISCHTIME"], stays["DEATHTIME"])
    chosen = np.flatnonzero((age >= 18) & (np.isnat(left) | (left > prediction)))
    if not len(chosen):
        raise ValueError(f"ADMISSIONS in {folder} has no adult who is still there {hours:g} hours after admission.")
    chosen = chosen[np.argsort(stays["HADM_ID"][chosen])]
    male = people["GENDER"][person] == "M"
    return Cohort(
        stays["HADM_ID"][chosen],
        stays["SUBJECT_ID"][chosen],
        stays["ADMITTIME"][chosen],
        np.stack([age.clip(max=90.0), male], 1)[chosen],
        stays["HOSPITAL_EXPIRE_FLAG"][chosen].astype(np.float64),
    )


@dataclass(frozen=True)
class Events:
    """What happened, in the order of the tables.

    Attributes:
        owners: Which admission of the cohort.
        hours: How long after it.
        keys: What, as an index into ``names``.
        values: The number that was measured, or NaN.
        names: Such as ``lab:50912``, ``chart:220048=AF (Atrial Fibrillation)`` or ``drug:aspirin``.
    """

    owners: NDArray[np.int32]
    hours: NDArray[np.float32]
    keys: NDArray[np.int32]
    values: NDArray[np.float32]
    names: list[str]


def read_events(folder: Path, cohort: Cohort, hours: float, tables: Sequence[str]) -> Events:
    """Read the events of the cohort from admission to the prediction, and nothing later."""
    numbers: dict[str, int] = {}
    parts = [part for table in tables for part in _table_events(folder, table, cohort, hours, numbers)]
    owners, times, keys, values = (
        np.concatenate([np.empty(0, kind), *(part[column] for part in parts)], dtype=kind)
        for column, kind in enumerate(_KINDS)
    )
    return Events(owners, times, keys, values, list(numbers))


def _table_events(
    folder: Path, table: str, cohort: Cohort, hours: float, numbers: dict[str, int]
) -> Iterator[tuple[NDArray[Any], ...]]:
    """Yield owners, hours, keys and values, batch by batch; new names get the next number."""
    import pyarrow as pa

    for batch in read_batches(folder, table.upper(), _COLUMNS[table]):
        admission = batch.column("HADM_ID").fill_null(-1).to_numpy(zero_copy_only=False)
        owner = np.searchsorted(cohort.admissions, admission).clip(max=len(cohort.admissions) - 1)
        elapsed = (_times(table, batch) - cohort.admitted[owner]) / np.timedelta64(3600, "s")
        kept = (cohort.admissions[owner] == admission) & (elapsed >= 0) & (elapsed < hours)  # NaN is never kept
        if "ERROR" in batch.schema.names:
            kept &= batch.column("ERROR").fill_null(0).to_numpy(zero_copy_only=False) != 1
        if not kept.any():
            continue
        names, values = _names_and_values(table, batch.filter(pa.array(kept)))
        encoded = names.dictionary_encode()
        known = np.array([numbers.setdefault(name, len(numbers)) for name in encoded.dictionary.to_pylist()])
        keys = known[encoded.indices.to_numpy(zero_copy_only=False)]
        parts = (owner[kept], elapsed[kept], keys, values)
        yield tuple(part.astype(kind) for part, kind in zip(parts, _KINDS, strict=True))


def _times(table: str, batch: Any) -> NDArray[np.datetime64]:
    if table == "prescriptions":
        # A date without a time of the day: surely over by midnight only.
        return batch.column("STARTDATE").to_numpy(zero_copy_only=False) + _DAY
    return batch.column("CHARTTIME").to_numpy(zero_copy_only=False)


def _names_and_values(table: str, batch: Any) -> tuple[Any, NDArray[np.float64]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if table == "prescriptions":
        drug = pc.utf8_lower(pc.utf8_trim_whitespace(batch.column("DRUG").fill_null("unknown")))
        return pc.binary_join_element_wise(TABLES[table], drug, ":"), np.full(len(batch), np.nan)
    item = pc.binary_join_element_wise(TABLES[table], batch.column("ITEMID").cast(pa.string()), ":")
    words = pc.coalesce(pc.binary_join_element_wise(item, batch.column("VALUE"), "="), item)
    number = batch.column("VALUENUM")
    return pc.if_else(number.is_valid(), item, words), number.to_numpy(zero_copy_only=False)
