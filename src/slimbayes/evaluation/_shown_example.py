"""A raw example as people see it: a picture, a text, or a few values by name."""

import base64
import datetime
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TypedDict

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from slimbayes.data._columns import Category, Column
from slimbayes.data.dataset import Task
from slimbayes.data.events import EventPreparation
from slimbayes.data.preparation import Preparation

#: A number; a category or a date; None where it is missing.
Value = float | str | None
#: Height or width, in pixels, of the largest picture in a page.
LONGEST = 96
#: Named values that are shown of an example.
MOST_VALUES = 12


class Shown(TypedDict):
    """What to show of an example; None for what it does not have."""

    picture: str | None
    text: str | None
    values: dict[str, Value] | None


def shown(raw: tuple[Tensor, ...], task: Task, preparation: Preparation) -> Shown:
    """Return an example's picture, or its text, or its values: the first that it has.

    Args:
        raw: The raw inputs of one example, without a batch axis.
        task: What is predicted; its ``input_shape`` tells images.
        preparation: Knows words and names of columns.

    Example:
        >>> import torch
        >>> from slimbayes.data._standardise import Standardised
        >>> shown((torch.tensor([5.0, 3.5]),), Task("categorical", 2, (2,)), Standardised([0.0, 0.0], [1.0, 1.0]))
        {'picture': None, 'text': None, 'values': {'feature 0': 5.0, 'feature 1': 3.5}}
    """
    seen = picture(raw, preparation) if len(task.input_shape) == 3 else None
    words = text(raw, preparation)
    return {"picture": seen, "text": words, "values": values(raw, preparation) if seen is words is None else None}


# ---------------------------------------------------------------------- pictures


def picture(raw: tuple[Tensor, ...], preparation: Preparation | None = None, longest: int = LONGEST) -> str | None:
    """Return an image as the data URI of a PNG, or None if the example is none.

    Args:
        raw: One tensor ``(channels, height, width)`` of 1 or 3 channels: uint8, or real from 0 to 1; other real
            values are stretched from their least to their greatest.
        preparation: How raw inputs become the network's; not looked at, since a raw image is what people see.
        longest: Larger images are averaged down to this height or width.
    """
    image = raw[0]
    if len(raw) != 1 or image.dim() != 3 or image.shape[0] not in (1, 3) or image.numel() == 0:
        return None
    if image.is_floating_point():
        low, high = (image.min(), image.max()) if image.min() < 0 or image.max() > 1 else (0.0, 1.0)
        if not image.isfinite().all():
            return None
        image = (image - low) / (high - low) * 255 if high > low else image * 0
    elif image.amin() < 0 or image.amax() > 255:
        return None
    size = max(image.shape[1:])
    if size > longest:
        height, width = (max(1, round(side * longest / size)) for side in image.shape[1:])
        image = F.interpolate(image.float()[None], (height, width), mode="area")[0]
    pixels = image.float().round().clamp(0, 255).permute(1, 2, 0).cpu().numpy().astype(np.uint8)
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()


def png(pixels: NDArray[np.uint8]) -> bytes:
    r"""Return a PNG file (RFC 2083); a line is stored as its difference from the one above where that is smaller.

    Shape:
        - ``pixels``: ``(height, width, channels)``, 1 or 3 channels.

    Example:
        >>> png(np.zeros((2, 2, 1), np.uint8))[:4]
        b'\x89PNG'
    """
    height, width, channels = pixels.shape
    lines = pixels.reshape(height, -1)
    above = np.concatenate([np.zeros_like(lines[:1]), lines[:-1]])
    filters = {0: lines, 2: lines - above}  # none, and "up", modulo 256
    packed = min(
        (zlib.compress(np.insert(filtered, 0, number, axis=1).tobytes(), 9) for number, filtered in filters.items()),
        key=len,
    )
    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2}[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", packed) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


# ---------------------------------------------------------------------- words and numbers


def text(raw: tuple[Tensor, ...], preparation: Preparation) -> str | None:
    """Return the words of a text's tokens, or None if the preparation has no words.

    Rare words, which the network cannot tell apart, are ``[rare]``; ``...`` stands for a beginning that was cut off.

    Example:
        >>> import torch
        >>> from slimbayes.data.text import Text
        >>> text((torch.tensor([0, 1, 5, 4, 2]),), Text(words="good a film", vocabulary=6, length=5))
        'a good [rare]'
    """
    from slimbayes.data.text import OFFSET, RARE, START, Text

    if not isinstance(preparation, Text) or raw[0].dim() != 1:
        return None
    words, tokens = _split(preparation.words), raw[0].tolist()
    known = [
        "[rare]" if token == RARE else words[token - OFFSET - 1] for token in tokens if token == RARE or token > OFFSET
    ]
    return " ".join([*([] if tokens[0] <= START else ["..."]), *known])


@lru_cache(maxsize=4)
def _split(words: str) -> list[str]:
    return words.split(" ")


def values(raw: tuple[Tensor, ...], preparation: Preparation, most: int = MOST_VALUES) -> dict[str, Value] | None:
    """Return the first named or numbered values of an example, or None if it has none; see ``named_values``."""
    found = named_values(raw, preparation)
    return None if not found else dict(list(found.items())[:most])


# ---------------------------------------------------------------------- values by name


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
            yield column.name, _word(value, column.kind) or value


def _word(value: float, kind: str) -> str | None:
    if kind == "boolean":
        return "true" if value == 1 else "false" if value == 0 else None
    if kind == "date":
        return (datetime.date(1970, 1, 1) + datetime.timedelta(days=round(value))).isoformat()
    return None


def _of_context(numbers: Sequence[float]) -> dict[str, Value]:
    """Name what is known at admission: by PhysioNet's columns, or MIMIC's age and sex."""
    from slimbayes.data._physionet_records import CONTEXT

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
    from slimbayes.data._physionet_records import VARIABLES

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
        prefix = f"input {number}, " if len(raw) > 1 else ""
        kind = "feature" if x.is_floating_point() else "token"
        if x.dim() in (0, 1):
            found |= {f"{prefix}{kind} {i}": _known(value) for i, value in enumerate(x.reshape(-1).tolist())}
        elif x.dim() == 2 and len(x):
            found |= {f"{prefix}{kind} {i} (last)": _known(value) for i, value in enumerate(x[-1].tolist())}
    return found


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
