"""The files of PhysioNet 2012: one text file a patient, and a table of outcomes for each set."""

import csv
import math
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from slimbayes.data.events import Records

#: The 37 series, in the order of the challenge's description; numbered from 1.
VARIABLES = (
    *("Albumin", "ALP", "ALT", "AST", "Bilirubin", "BUN", "Cholesterol", "Creatinine", "DiasABP", "FiO2", "GCS"),
    *("Glucose", "HCO3", "HCT", "HR", "K", "Lactate", "Mg", "MAP", "MechVent", "Na", "NIDiasABP", "NIMAP", "NISysABP"),
    *("PaCO2", "PaO2", "pH", "Platelets", "RespRate", "SaO2", "SysABP", "Temp", "TroponinI", "TroponinT", "Urine"),
    *("WBC", "Weight"),
)
_NUMBERS = {name: number for number, name in enumerate(VARIABLES, 1)}
_DESCRIPTORS = ("RecordID", "Age", "Gender", "Height", "ICUType", "Weight")
#: The columns of the context: what is known at admission, and the type of the unit as 0 or 1 for each of the four.
CONTEXT = ("Age", "Gender", "Height", "Weight", "ICUType1", "ICUType2", "ICUType3", "ICUType4")
_HEADER = "Time,Parameter,Value"
#: The publisher's mark for a missing value.
_MISSING = -1.0

_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
_Event = tuple[float, int, float]


def find_set(folder: Path, name: str) -> Path | None:
    """Return where the records of ``set-a``, ``set-b`` or ``set-c`` are: a folder or an archive, or None."""
    places = [folder / f"{name}{ending}" for ending in ("", ".tar.gz", ".zip")]
    return next((place for place in places if place.exists()), None)


def read_records(place: Path) -> tuple[list[str], Records]:
    """Read the records of a folder, an archive or one file.

    Returns:
        Their names in rising order, and the records; values and context as recorded, NaN for missing context.

    Raises:
        ValueError: A line is malformed; names the file and the line.
    """
    names, lengths, context, events = [], [], [], []
    for name, text in sorted(_texts(place)):
        descriptors, series = _parse(f"{place / name}" if place.suffix != ".txt" else str(place), text)
        names.append(PurePosixPath(name).stem)
        lengths.append(len(series))
        context.append(_context(descriptors))
        events.append(np.array(series, np.float64).reshape(-1, 3))
    if not names:
        raise ValueError(f"{place} holds no records: .txt files that begin with {_HEADER}.")
    times, variables, values = np.concatenate(events).T
    return names, Records.of(lengths, times, variables, values, context)


def read_outcomes(path: Path) -> dict[str, float]:
    """Return who died in hospital: 1 or 0 by RecordID; the other columns are known too late to be of use."""
    with path.open(newline="") as lines:
        rows = csv.DictReader(lines)
        outcomes = {}
        for row in rows:
            if row.get("RecordID") is None or row.get("In-hospital_death") not in ("0", "1"):
                raise ValueError(
                    f"{path}, line {rows.line_num}: expected a RecordID and an In-hospital_death of 0 or 1, but got "
                    f"{row.get('RecordID')!r} and {row.get('In-hospital_death')!r}."
                )
            outcomes[row["RecordID"]] = float(row["In-hospital_death"])
    return outcomes


def _texts(place: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each record."""
    if place.is_dir():
        yield from ((path.name, path.read_text()) for path in place.glob("*.txt") if _is_record(path.name))
    elif place.suffix == ".txt":
        yield place.name, place.read_text()
    elif not place.name.endswith(_ARCHIVES):
        raise ValueError(f"Expected {place} to be a folder of records, an archive (.tar.gz, .zip) or one .txt record.")
    else:
        try:
            yield from _archived(place)
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{place} is truncated or damaged: {error}. Fetch it again.") from error


def _archived(place: Path) -> Iterator[tuple[str, str]]:
    if place.suffix == ".zip":
        with zipfile.ZipFile(place) as archive:
            for name in filter(_is_record, archive.namelist()):
                yield PurePosixPath(name).name, archive.read(name).decode()
    else:
        with tarfile.open(place, "r:*") as tar:
            for member in tar:
                if _is_record(member.name) and (content := tar.extractfile(member)) is not None:
                    yield PurePosixPath(member.name).name, content.read().decode()


def _is_record(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix == ".txt" and not path.name.startswith(("Outcomes", "."))


def _parse(name: str, text: str) -> tuple[dict[str, float], list[_Event]]:
    """Return the descriptors and the events of one record."""
    lines = text.splitlines()
    if not lines or lines[0].strip() != _HEADER:
        raise ValueError(f"{name}, line 1: expected the header {_HEADER}, but got {(lines or [''])[0]!r}.")
    descriptors: dict[str, float] = {}
    series: list[_Event] = []
    for number, line in enumerate(lines[1:], 2):
        try:
            time, parameter, reading = line.split(",")
            hours, minutes = time.split(":")
            value = float(reading)
            if not math.isfinite(value):
                raise ValueError(reading)
            # The first Weight at admission is a descriptor, any other one of the series.
            if parameter in _DESCRIPTORS and time == "00:00" and parameter not in descriptors:
                descriptors[parameter] = value
            elif value != _MISSING:
                series.append((int(hours) + int(minutes) / 60, _NUMBERS[parameter], value))
        except (ValueError, KeyError) as error:
            if not line.strip():
                continue
            raise ValueError(
                f"{name}, line {number}: expected HH:MM, a parameter of the challenge and a number, but got {line!r}."
            ) from error
    return descriptors, series


def _context(descriptors: dict[str, float]) -> list[float]:
    known = {name: value for name, value in descriptors.items() if value != _MISSING}
    unit = known.get("ICUType", np.nan)
    plain = [known.get(name, np.nan) for name in CONTEXT[:4]]
    return [*plain, *(float(unit == one) if unit == unit else np.nan for one in (1, 2, 3, 4))]
