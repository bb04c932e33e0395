"""One process at a time trains in a folder, also where several machines share it."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from slimbayes._files import HOST, is_alive

__all__ = ["LOCK", "FolderInUse", "alone_in"]

#: The file that says who trains; it is made by one process and removed when that has ended.
LOCK = ".lock"
#: Seconds after which a lock without content is one whose process was killed before it had written it.
WRITING = 10.0
#: What this process holds: a number that is alive need not be the process that wrote it.
_OWN: set[str] = set()
_GUARD = threading.Lock()


class FolderInUse(OSError):  # noqa: N818
    """Another process trains in the folder."""


@contextmanager
def alone_in(folder: Path, wait: bool = False, task: str | None = None) -> Iterator[None]:
    """Be the only one that trains in a folder.

    The file is created exclusively, which network file systems do atomically. The lock of a process that is no more is
    taken over if it was on this machine; of another machine, or another container of this one, nothing can be known.

    Args:
        folder: Made if it is not there, and removed again if nothing was written to it.
        wait: Wait for another process of this machine to end, instead of raising.
        task: Names the work where somebody else sees to it that it is done by one process at a time, as Ray does: the
            lock of the same task is one of an earlier attempt, on whatever machine.

    Raises:
        FolderInUse: Another process trains here, or one of another machine did and has left its lock.
    """
    process = {"process": os.getpid(), "born": _born(os.getpid()), "container": _container()}
    content = json.dumps({"host": HOST, **process, "task": task, **_now()})
    path, there = folder / LOCK, folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while not _take(path, content, wait, task):
            time.sleep(0.1)
    except OSError as error:
        if isinstance(error, FolderInUse):
            raise
        raise OSError(f"Cannot write to {folder}: {error.strerror or error}. Give another folder.") from error
    _OWN.add(str(path.resolve()))
    try:
        yield
    finally:
        _OWN.discard(str(path.resolve()))
        with suppress(OSError):
            path.unlink()
            if not there:
                folder.rmdir()  # which only an empty one lets happen


def _take(path: Path, content: str, wait: bool, task: str | None) -> bool:
    """Take the lock, or return False if it is to be tried again."""
    with suppress(FileExistsError), open(path, "x") as file:
        try:
            file.write(content)
            file.flush()
        except OSError:  # a full disk
            path.unlink()
            raise
        return True
    with _GUARD, suppress(FileNotFoundError), open(path, "r+", opener=_opened_itself) as file:
        with suppress(ImportError, OSError):  # of two that take over one lock, the second finds the first in it
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        holder = _read(file.read())
        if holder is None and time.time() - path.stat().st_mtime < WRITING:
            return False
        if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return False
        if holder is None or not _holds(holder, path, task):
            file.seek(0)
            file.truncate()
            file.write(content)
            return True
        if wait and _is_here(holder):
            return False
        raise FolderInUse(_message(path, holder))
    return False


def _read(text: str) -> dict[str, Any] | None:
    try:
        content = json.loads(text)
    except ValueError:
        return None
    return content if isinstance(content, dict) else {"host": HOST, "process": content}  # a number until 0.1


def _holds(holder: dict[str, Any], path: Path, task: str | None) -> bool:
    if task is not None and holder.get("task") == task:
        return False
    process = holder.get("process")
    if not _is_here(holder):
        return True
    if process == os.getpid() and holder.get("born") == _born(os.getpid()):
        return str(path.resolve()) in _OWN
    return isinstance(process, int) and is_alive(process) and holder.get("born") == _born(process)


def _is_here(holder: dict[str, Any]) -> bool:
    """Tell whether the numbers of the holder's processes are those of this process."""
    return holder.get("host") == HOST and holder.get("container", _container()) == _container()


def _container() -> str | None:
    """Return what is the same for processes that see each other's numbers, until the machine is started again.

    Containers may have the name of their host, and each a process 1. None if the system hides it.
    """
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def _opened_itself(path: str, flags: int) -> int:
    """Open a file, but not what a link in its place points to."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0))


def _born(process: int) -> str | None:
    """Return when a process of this machine was started, as numbers are given again; None if the system hides it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path(f'/proc/{process}/stat').read_text().rpartition(')')[2].split()[19]}"
    except (OSError, IndexError):
        return None


def _now() -> dict[str, str]:
    return {"since": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())}


def _message(path: Path, holder: dict[str, Any]) -> str:
    who = f"process {holder.get('process')} on {holder.get('host')}, since {holder.get('since', 'an unknown time')}"
    if _is_here(holder):
        remedy = "Wait for it, end it, or give another folder."
    else:
        what = "machine" if holder.get("host") != HOST else "container"
        remedy = f"Wait for it, or give another folder. If it is no more, as after a crash of that {what}: rm {path}"
    return f"{path.parent} is in use: another training writes there ({who}). {remedy}"
