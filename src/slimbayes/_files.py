"""Files that are written whole or not at all, and read with their names in every error."""

import hashlib
import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: The key of what a JSON file says of itself, see ``with_checksum``.
CHECKSUM = "checksum"
#: This machine, as it stands in the names of temporary files and in locks.
HOST = re.sub(r"[^\w.-]", "_", socket.gethostname()) or "unknown"


@contextmanager
def replacing(*paths: Path) -> Iterator[list[Path]]:
    """Yield temporary paths that take the given ones' place once all are written; a failure changes nothing.

    What processes that were killed have left of the same files is removed.
    """
    for path in paths:
        _clean(path)
    temporary = [path.with_name(f".{path.name}.{HOST}-{os.getpid()}") for path in paths]
    try:
        yield temporary
        for source in temporary:
            to_disk(source)
        for source, path in zip(temporary, paths, strict=True):
            os.replace(source, path)
    finally:
        for source in temporary:
            source.unlink(missing_ok=True)


def _clean(path: Path) -> None:
    """Remove temporary files of this machine's processes that have ended; before 0.1 their names lacked the host."""
    if not path.parent.is_dir():
        return
    begin = f".{path.name}."
    for name in os.listdir(path.parent):
        if name.startswith(begin):
            owner = re.fullmatch(rf"(?:{re.escape(HOST)}-)?(\d+)", name[len(begin) :])
            if owner and not is_alive(int(owner[1])):
                path.with_name(name).unlink(missing_ok=True)


def is_alive(process: int) -> bool:
    """Tell whether a process of this machine still runs; one that has ended but waits for its parent does not.

    Example:
        >>> is_alive(os.getpid()), is_alive(0)
        (True, False)
    """
    if process <= 0:  # which would mean a group of processes
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        return True
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):  # a system without /proc
        return True


def to_disk(path: Path) -> None:
    """Wait until a file or folder is on the disk: a power cut does not lose it then."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, content: Any) -> None:
    """Write JSON values.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_json(Path(folder) / "a.json", {"b": 1})
        ...     (Path(folder) / "a.json").read_text().split()
        ['{', '"b":', '1', '}']
    """
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    if path.exists() and not path.is_file():  # a device such as /dev/null is not to be replaced by a file
        path.write_text(text)
        return
    with replacing(path) as (temporary,):
        temporary.write_text(text)


def with_checksum(content: dict[str, Any]) -> dict[str, Any]:
    """Return JSON values with a hash of all of them, so that ``read_json`` notices if one is changed.

    Example:
        >>> list(with_checksum({"mean": 0.5}))
        ['mean', 'checksum']
    """
    return {**content, CHECKSUM: _digest(content)}


def _digest(content: dict[str, Any]) -> str:
    as_read = json.loads(json.dumps(content))  # which has neither tuples nor numbers as keys
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()


def read_json(path: Path, remedy: str, keys: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the object in a JSON file, without its checksum; whatever is wrong with it names the file.

    Args:
        path: The file.
        remedy: What to do if it is damaged: a sentence.
        keys: What it must have.
    """
    try:
        content = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: it is not JSON ({error}). {remedy}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged: it should hold names and values, but holds {_brief(content)}. {remedy}")
    if content.pop(CHECKSUM, None) not in (None, _digest(content)):
        raise ValueError(f"{path} is damaged, or was changed by hand: its `{CHECKSUM}` is of other values. {remedy}")
    if missing := [key for key in keys if key not in content]:
        raise ValueError(f"{path} is damaged: it lacks {', '.join(map(repr, missing))}. {remedy}")
    return content


def _brief(content: Any) -> str:
    text = repr(content)
    return text if len(text) < 60 else f"{text[:57]}..."


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content, as ``sha256sum`` prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def csv_cell(value: Any) -> Any:
    """Return a cell of a CSV file that no spreadsheet takes for a formula: a text that begins like one gets a ``'``.

    Numbers, also those written as text, stay as they are.

    Example:
        >>> [csv_cell(value) for value in ("=1+1", "-1", "-a", "cat", 2.5)]
        ["'=1+1", '-1', "'-a", 'cat', 2.5]
    """
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
        return value
    return value if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", value) else f"'{value}"
