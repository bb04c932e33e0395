"""Files that are written whole or not at all."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["replacing", "to_disk", "write_json"]


@contextmanager
def replacing(*paths: Path) -> Iterator[list[Path]]:
    """Yield temporary paths that take the given ones' place once all are written; a failure changes nothing."""
    temporary = [path.with_name(f".{path.name}.{os.getpid()}") for path in paths]
    try:
        yield temporary
        for source in temporary:
            to_disk(source)
        for source, path in zip(temporary, paths, strict=True):
            os.replace(source, path)
    finally:
        for source in temporary:
            source.unlink(missing_ok=True)


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
