"""What this machine has: the cores and the memory that a process may use."""

import ctypes
import os
import sys

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # of glibc's mallopt
_LARGEST_KEPT = 1 << 30  # bytes of a block
_CHOSEN_BY_THE_USER = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def usable_cores() -> int:
    """Count the processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_memory() -> int | None:
    """Tell the memory of this machine in bytes; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None


def keep_freed_memory() -> bool:
    """Let this process keep the memory that tensors leave, for the next ones; tell whether it does now.

    On Linux, blocks of some megabytes go back to the system as soon as they are free, and the system clears every page
    of the next one. That takes a quarter of a training step of a large network on a processor, and more than half of a
    pass without gradients (benchmarks/kept_memory.py). Kept memory stays with the process until it ends. Blocks above a
    gigabyte still go back.

    Nothing happens on other systems, with other C libraries, and where the environment says what to do instead.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _CHOSEN_BY_THE_USER):
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    return all(set_option(option, value) for option, value in ((_MMAP_THRESHOLD, _LARGEST_KEPT), (_TRIM_THRESHOLD, -1)))


def gigabytes(size: float) -> str:
    """Write a number of bytes, for example "1,234.5 GB"; a gigabyte is a billion bytes."""
    return f"{size / 1e9:,.1f} GB"
