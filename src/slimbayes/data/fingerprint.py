"""What tells one state of a data set from another: contents, shapes, columns and preparation."""

import hashlib
import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any

import numpy as np
from torch import Tensor

from slimbayes.data._image_files import ImageFiles
from slimbayes.data.dataset import DataSet, Rows

__all__ = ["differences", "digest_of", "fingerprint"]

#: Bytes of image files up to which their contents count; of more, their names and sizes only.
FILES = 2**30
PARTS = ("train", "validation", "test")
#: What a task that has changed is said to differ in. Targets are hashed standardised: their mean and scale count apart.
TOLD = {
    "likelihood": "the kind of targets",
    "classes": "the classes",
    "vocabulary": "the number of tokens",
    "target_mean": "the mean of the training targets",
    "target_std": "the standard deviation of the training targets",
}


def fingerprint(data: DataSet) -> dict[str, Any]:
    """Return JSON values that are the same as long as the data are: task, rows, and a hash of each part.

    What is in memory is hashed whole. Of image files the names, sizes and classes count, and the contents as long as
    they are at most 1 GiB in all. Where the files are does not matter.

    Example:
        >>> from slimbayes.data.registry import load_data
        >>> found = fingerprint(load_data("iris"))
        >>> found["name"], found["parts"]["train"]["rows"], len(found["parts"]["train"]["sha256"])
        ('iris', 105, 64)
    """
    parts: dict[str, Any] = {}
    for name in PARTS:
        examples = getattr(data, name)
        if examples is not None:
            parts[name] = {"rows": len(examples), "sha256": digest_of(examples)}
    task = {name: value for name, value in asdict(data.task).items() if name != "input_shape"}
    prepared = hashlib.sha256(json.dumps(data.preparation.spec(), sort_keys=True).encode()).hexdigest()
    shape = list(data.task.input_shape)
    return {"name": data.name, "input_shape": shape, "task": task, "prepared": prepared, "parts": parts}


def digest_of(value: Any) -> str:
    """Return a hash of tensors, image files, examples, or a nest of such."""
    digest = hashlib.sha256()
    _feed(digest, value)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    """Take a value into a hash, with what it consists of."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str} {value.shape}".encode())
        digest.update(np.ascontiguousarray(value).view(np.uint8).data if value.size else b"")
    elif isinstance(value, ImageFiles):
        _feed_files(digest, value)
    elif isinstance(value, Rows) and _is_range(value.rows, len(value.source)):
        _feed(digest, value.source)
    elif is_dataclass(value):
        for field in fields(value):
            digest.update(field.name.encode())
            _feed(digest, getattr(value, field.name))
    elif isinstance(value, Mapping):
        _feed(digest, sorted(value.items()))
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        digest.update(f"{len(value)}".encode())
        for one in value:
            _feed(digest, one)
    else:
        digest.update(repr(value).encode())


def _is_range(rows: Tensor, length: int) -> bool:
    return len(rows) == length and (length == 0 or (int(rows[0]) == 0 and bool((rows.diff() == 1).all())))


def _feed_files(digest: Any, files: ImageFiles) -> None:
    _feed(digest, [files.names, files.targets, files.size, files.channels, files.zoom])
    sizes = np.array([files.path(row).stat().st_size for row in range(len(files))], dtype=np.int64)
    _feed(digest, sizes)
    if sizes.sum() <= FILES:
        for row in range(len(files)):
            digest.update(files.path(row).read_bytes())


def differences(
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    prepared: Mapping[str, Any] | None = None,
    prepares: Mapping[str, Any] | None = None,
) -> list[str]:
    """Return what has changed between two states of a data set, in words; nothing if they are the same.

    Args:
        before: The earlier fingerprint.
        now: The later one.
        prepared: The earlier preparation's spec; None to compare the fingerprints' hashes of it.
        prepares: The later one's. Numbers that differ by rounding alone are the same.

    Example:
        >>> old = {"name": "iris", "parts": {"train": {"rows": 5, "sha256": "a"}}}
        >>> new = {"name": "iris", "parts": {"train": {"rows": 4, "sha256": "b"}}}
        >>> differences(old, new)
        ['train had 5 rows, now 4']
    """
    found = []
    names, others = ([one["name"] for one in (spec or {}).get("columns", ())] for spec in (prepared, prepares))
    if gone := [repr(name) for name in names if name not in others]:
        found.append(f"the columns {', '.join(gone)} are gone" if len(gone) > 1 else f"the column {gone[0]} is gone")
    if new := [repr(name) for name in others if name not in names]:
        found.append(f"the columns {', '.join(new)} are new" if len(new) > 1 else f"the column {new[0]} is new")
    for part in PARTS:
        old, own = before["parts"].get(part), now["parts"].get(part)
        if old is None or own is None:
            if old is not own:
                found.append(f"there was no {part} part" if old is None else f"the {part} part is gone")
        elif old["rows"] != own["rows"]:
            found.append(f"{part} had {old['rows']} rows, now {own['rows']}")
        elif old["sha256"] != own["sha256"]:
            found.append(f"the values of {part} differ")
    if before.get("input_shape") != now.get("input_shape"):
        found.append(f"an example had the shape {before.get('input_shape')}, now {now.get('input_shape')}")
    found = found or _task_differences(before.get("task"), now.get("task"))
    if prepared is None or prepares is None:
        alike = before.get("prepared") in (None, now.get("prepared"))
    else:
        alike = _alike(prepared, prepares)
    if not found and not alike:
        found.append("they are prepared in another way (means, scales or categories)")
    return found


def _task_differences(before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> list[str]:
    """Return in what two tasks differ; fingerprints of older versions have none, and nothing is known of them."""
    if before is None or now is None:
        return []
    found = []
    for key, what in TOLD.items():
        if not _alike(before.get(key), now.get(key)):
            old, new = (textwrap.shorten(str(task.get(key)), 80) for task in (before, now))
            found.append(f"{what}: {old}, now {new}")
    return found


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, (float, int)):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    return bool(one == other)
