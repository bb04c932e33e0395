"""The process of one cell: it trains what a folder's ``config.yaml`` says.

Locally it is run as a file, ``_cell_process.py FOLDER PARENT TASK``, where TASK is a function to call, ``module:name``:
importing the package takes seconds, and the watch over the process that started this one begins before.
"""

import importlib
import os
import sys
import threading
import time
import traceback
from pathlib import Path


def train_cell(folder: Path, task: str | None = None) -> str | None:
    """Train what the folder holds from its last checkpoint on; return None, or what went wrong in one line.

    The whole story goes to the standard error. Another process that trains here, such as one of a call that was killed,
    is waited for.

    Args:
        folder: Its ``config.yaml`` is what somebody has just asked for, own network included.
        task: See ``alone_in``.
    """
    from slimbayes._allocator import keep_freed_memory
    from slimbayes.training.engine import continue_run
    from slimbayes.training.run import Run

    keep_freed_memory()
    try:
        continue_run(Run.open(folder), task)
    except Exception as error:
        traceback.print_exc()
        return " ".join(f"{type(error).__name__}: {error}".split())
    return None


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=[int(sys.argv[2])], daemon=True).start()
    module, _, name = sys.argv[3].partition(":")
    sys.exit(getattr(importlib.import_module(module), name)(Path(sys.argv[1])))
