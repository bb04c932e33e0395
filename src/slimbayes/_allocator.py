"""The C library's allocator, told to keep what is freed: memory from the system costs more than arithmetic on it."""

import ctypes
import sys

#: ``mallopt``'s numbers for when to give memory back, and for what to ask the system each time.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
#: Bytes; more than a step frees at once.
PLENTY = 2**30


def keep_freed_memory() -> bool:
    """Let this process keep up to a gigabyte that it has freed, instead of returning it and asking for it again.

    A train step frees its activations at the end and needs them again in the next one. Where the GNU C library gives
    them back in between, the system clears every page anew. Nothing changes elsewhere, nor on accelerators.

    Returns:
        Whether the allocator has taken notice.

    Example:
        >>> keep_freed_memory() in (True, False)
        True
    """
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    return all(library.mallopt(option, PLENTY) == 1 for option in (TRIM_THRESHOLD, MMAP_THRESHOLD))
