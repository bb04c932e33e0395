"""The machine that a benchmark runs on: its load, its threads, its accelerator, its clock."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from slimbayes._allocator import keep_freed_memory

__all__ = ["accelerator", "clock_of", "load_average", "load_warning", "measuring", "torch_threads"]


def load_average() -> float | None:
    """Return how many processes wanted to run in the last minute, on average; None where nobody counts them."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def load_warning(load: float | None) -> str | None:
    """Return what a load before the run suggests about the ratios.

    A neighbour takes caches, memory bandwidth and clock frequency even when it has a core of its own. Half a process
    is more than a resting machine shows; a large one may have a twentieth of its cores at work unnoticed.

    Example:
        >>> load_warning(0.1) is None
        True
    """
    if load is None or load <= max(0.5, 0.05 * (os.cpu_count() or 1)):
        return None
    return (
        f"The load average was {load:.2f} before the run: another process seems to be busy, and the ratios are less "
        "certain than they look. Stop it, wait a minute and run again."
    )


@contextmanager
def measuring(threads: int) -> Iterator[None]:
    """Set torch's number of threads for a while, and let the process keep the memory that it frees.

    Without the latter a ratio would depend on whether a step frees just enough for the C library to give it back.

    Example:
        >>> with measuring(threads=2):
        ...     torch.get_num_threads()
        2
    """
    keep_freed_memory()
    with torch_threads(threads):
        yield


@contextmanager
def torch_threads(threads: int | None) -> Iterator[None]:
    """Set torch's number of threads for a while; None leaves it."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if threads is None else threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def accelerator() -> torch.device:
    """Return the accelerator that torch sees, or raise if there is none."""
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if found is None:
        raise ValueError(
            f"Expected a GPU or another accelerator, but torch {torch.__version__} sees none. Install a build of torch "
            "for yours, or measure on the CPU."
        )
    return found


def clock_of(device: torch.device) -> Callable[[], float]:
    """Return a clock in seconds that first waits until the device has done what it was told."""
    if device.type == "cpu":
        return time.perf_counter

    def clock() -> float:
        torch.get_device_module(device).synchronize()
        return time.perf_counter()

    return clock
