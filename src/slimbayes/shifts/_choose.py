"""Which shifts fit a data set."""

from typing import Any

import torch

from slimbayes.data.dataset import DataSet
from slimbayes.shifts._hourly import Hourly, bounds_of
from slimbayes.shifts.columns import Columns
from slimbayes.shifts.events import Events
from slimbayes.shifts.shift import Layout, Shift
from slimbayes.shifts.tokens import Tokens


def shifts_for(data: DataSet) -> dict[str, Shift]:
    """Return the shifts of severity 1 to 5 that fit the prepared inputs of a data set, by name.

    Args:
        data: Tables have ``missing``, ``noise`` and ``drift``; series also ``gap``; events also ``dropped``; texts
            ``unknown``, ``dropped`` and ``gap``. Images and unknown kinds of preparation have none.

    Example:
        >>> from slimbayes.data import load_data
        >>> data = load_data("iris")
        >>> inputs, targets = data.test.fetch(torch.arange(4))
        >>> shifts = shifts_for(data)
        >>> list(shifts)
        ['missing', 'noise', 'drift']
        >>> shifts["noise"](data.preparation(*inputs), severity=3)[0].shape
        torch.Size([4, 4])
    """
    layout = layout_of(data)
    return {} if layout is None else layout.shifts


def layout_of(data: DataSet) -> Layout | None:
    """Return what the prepared inputs of a data set hold; None if nobody knows."""
    preparation: Any = data.preparation
    match preparation.kind:
        case "standardised":
            return Columns.standardised(len(preparation.mean))
        case "table":
            return Columns.of_table(preparation)
        case "physionet_hourly":
            return Hourly(*bounds_of(preparation.values.parts), context=len(preparation.context.parts["mean"]))
        case "physionet_events" | "mimic3":
            # Padding comes before the variables that have values, and those without come after.
            silent = len(preparation.variables) - len(preparation.values.parts["mean"])
            pad = torch.nn.functional.pad
            return Events(*(pad(bound, (1, silent)) for bound in bounds_of(preparation.values.parts)))
        case "text":
            return Tokens(preparation.vocabulary)
        case "arrays":
            return _of_arrays(data)
    return None


def _of_arrays(data: DataSet) -> Layout | None:
    """Return columns for rows of numbers, or for series of them; arrays of more axes may be anything."""
    inputs, _ = data.train.fetch(torch.arange(1))
    plain = len(inputs) == 1 and inputs[0].is_floating_point() and inputs[0].dim() in (2, 3)
    return Columns.of_examples(data.train) if plain else None
