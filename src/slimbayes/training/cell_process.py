"""The process of one cell: it trains what a folder's ``config.yaml`` says.

Locally it is run as a file, ``cell_process.py FOLDER PARENT TASK``, where TASK is a function to call, ``module:name``:
importing the package takes seconds, and the watch over the process that started this one begins before.
"""

import importlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["LOCK", "train_cell"]

#: Holds the id of the process that trains, and is locked while it lives.
LOCK = ".lock"


def train_cell(folder: Path) -> str | None:
    """Train what the folder holds from its last checkpoint on; return None, or what went wrong in one line.

    The whole story goes to the standard error.
    """
    from slimbayes._allocator import keep_freed_memory
    from slimbayes.training import Run, fit

    keep_freed_memory()
    try:
        with _alone(folder):
            fit(Run.open(folder).config, folder, resume=True)
    except Exception as error:
        traceback.print_exc()
        return " ".join(f"{type(error).__name__}: {error}".split())
    return None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until nobody else trains here: a process that is being killed, or another call for the same grid."""
    with (folder / LOCK).open("a") as file:
        with suppress(ImportError, OSError):  # some systems, and some shared folders, have no locks
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=[int(sys.argv[2])], daemon=True).start()
    module, _, name = sys.argv[3].partition(":")
    sys.exit(getattr(importlib.import_module(module), name)(Path(sys.argv[1])))
