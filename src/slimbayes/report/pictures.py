"""A raw example as people see it: a picture, a text, or a few named values."""

import base64
import struct
import zlib
from functools import lru_cache
from typing import TypedDict

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from slimbayes.data.dataset import Task
from slimbayes.data.preparation import Preparation
from slimbayes.report.named_values import Value, named_values

__all__ = ["Shown", "picture", "png", "shown", "text", "values"]

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
        >>> from slimbayes.data.standardise import Standardised
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
    r"""Return a PNG file (RFC 2083), of each line its difference from the one above if that is smaller.

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
    """Return the first named or numbered values of an example, or None if it has no such; see ``named_values``."""
    found = named_values(raw, preparation)
    return None if not found else dict(list(found.items())[:most])
