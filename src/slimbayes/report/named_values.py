"""The values of an example under the names that its preparation knows."""

import datetime
import math
from collections.abc import Iterator, Sequence

from torch import Tensor

from slimbayes.data.columns import Category, Column
from slimbayes.data.events import EventPreparation
from slimbayes.data.preparation import Preparation

__all__ = ["Value", "named_values"]

#: A number; a category or a date; None where it is missing.
Value = float | str | None


def named_values(raw: tuple[Tensor, ...], preparation: Preparation) -> dict[str, Value]:
    """Return values by name, before standardisation: of tables by column, of series the last of each variable.

    Args:
        raw: The raw inputs of one example, without a batch axis.
        preparation: Knows the names; without any they are numbered from 0.

    Example:
        >>> import torch
        >>> from slimbayes.data.table import Table
        >>> pet = {"kind": "categorical", "name": "pet", "categories": ["cat", "dog"]}
        >>> age = {"kind": "number", "name": "age", "mean": 4.0, "std": 2.0, "fill": 4.0, "flagged": False}
        >>> named_values((torch.tensor([0.0, 1.0, 0.0, 1.5]),), Table(columns=[pet, age]))
        {'pet': 'dog', 'age': 7.0}
    """
    from slimbayes.data.physionet import PhysionetHourly
    from slimbayes.data.table import Table

    if isinstance(preparation, Table):
        return dict(_of_table(raw[0].tolist(), preparation.columns))
    if isinstance(preparation, EventPreparation):
        return _of_context(raw[3].tolist()) | _of_events(raw[1].tolist(), raw[2].tolist(), preparation)
    if isinstance(preparation, PhysionetHourly):
        return _of_context(raw[1].tolist()) | _of_hours(raw[0])
    return _numbered(raw)


def _of_table(features: Sequence[float], columns: Sequence[Column]) -> Iterator[tuple[str, Value]]:
    start = 0
    for column in columns:
        own, start = features[start : start + column.width], start + column.width
        if isinstance(column, Category):
            yield column.name, [*column.categories, "other or missing"][own.index(max(own))]
        elif column.flagged and own[1]:
            yield column.name, None
        else:
            value = own[0] * column.std + column.mean
            yield column.name, _text(value, column.kind) or value


def _text(value: float, kind: str) -> str | None:
    if kind == "boolean":
        return "true" if value == 1 else "false" if value == 0 else None
    if kind == "date":
        return (datetime.date(1970, 1, 1) + datetime.timedelta(days=round(value))).isoformat()
    return None


def _of_context(numbers: Sequence[float]) -> dict[str, Value]:
    """Name what is known at admission: by PhysioNet's columns, or MIMIC's age and sex."""
    from slimbayes.data.physionet_records import CONTEXT

    if len(numbers) == len(CONTEXT):
        return {name: _known(value) for name, value in zip(CONTEXT[:4], numbers[:4], strict=True)}
    if len(numbers) == 2:
        return {"Age": _known(numbers[0]), "Man": "yes" if numbers[1] else "no"}
    return {f"context {number}": _known(value) for number, value in enumerate(numbers)}


def _of_events(variables: Sequence[int], numbers: Sequence[float], preparation: EventPreparation) -> dict[str, Value]:
    """Return the last value of each variable, those last observed first."""
    with_value = len(preparation.values.parts["mean"])
    latest: dict[str, Value] = {}
    for variable, value in zip(reversed(variables), reversed(numbers), strict=True):
        if 0 < variable <= with_value:
            latest.setdefault(f"{preparation.variables[variable - 1]} (last)", value)
    return latest


def _of_hours(hours: Tensor) -> dict[str, Value]:
    """Return the last hourly mean of each variable, those last observed first."""
    from slimbayes.data.physionet_records import VARIABLES

    latest: dict[str, Value] = {}
    for hour in reversed(hours.tolist()):
        for name, value in zip(VARIABLES, hour, strict=True):
            if not math.isnan(value):
                latest.setdefault(f"{name} (last)", value)
    return latest


def _numbered(raw: tuple[Tensor, ...]) -> dict[str, Value]:
    """Number the values of vectors, and those of the last step of series."""
    found: dict[str, Value] = {}
    for number, x in enumerate(raw):
        place = f"input {number}, " if len(raw) > 1 else ""
        kind = "feature" if x.is_floating_point() else "token"
        if x.dim() in (0, 1):
            found |= {f"{place}{kind} {i}": _known(value) for i, value in enumerate(x.reshape(-1).tolist())}
        elif x.dim() == 2 and len(x):
            found |= {f"{place}{kind} {i} (last)": _known(value) for i, value in enumerate(x[-1].tolist())}
    return found


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
