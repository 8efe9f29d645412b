"""What this machine has: the cores and the memory that a process may use."""

import ctypes
import os
import re
import sys
from contextlib import suppress
from pathlib import Path

try:
    import resource
except ImportError:  # Windows keeps no such count
    resource = None  # type: ignore[assignment]

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # of glibc's mallopt
_LARGEST_KEPT = 1 << 30  # bytes of a block
_STATUS, _SET_BACK = Path("/proc/self/status"), Path("/proc/self/clear_refs")  # of Linux
_OUT_OF_MEMORY = re.compile(r"can't allocate memory|out of memory|Unable to allocate|CUBLAS_STATUS_ALLOC_FAILED")
_WANTED_BYTES = re.compile(
    r"tried to allocate (\d+) bytes|[Tt]ried to allocate ([\d.]+ [KMGT]i?B)|allocate ([\d.]+ [KMGT]i?B)"
)
_CHOSEN_BY_THE_USER = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")

LESS_MEMORY = (
    "lower train.classes_per_batch or train.images_per_class, run.evaluation_batch, run.workers, data.crop, "
    "ccp.pool_per_class or ccp.proxies_per_class, or the size of an .npz"
)
"""What a user can do where memory runs out."""


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


class MemoryPeak:
    """The most memory that this process has taken since this object was made: it may have trained other runs before."""

    def __init__(self) -> None:
        with suppress(OSError, AttributeError):  # not glibc
            ctypes.CDLL(None).malloc_trim(0)  # kept memory of an earlier run would count as this one's
        try:
            _SET_BACK.write_text("5", encoding="ascii")
            self.before = 0
        except OSError:
            self.before = _memory_mark()

    def read(self) -> int | None:
        """Read the peak in bytes; None where the system does not say, or may mean a moment before."""
        mark = _memory_mark()
        return mark if mark > self.before else None


def _memory_mark() -> int:
    """Read the most bytes of this process that were ever in memory, or since the mark was set back; 0: not known."""
    with suppress(OSError, StopIteration):
        lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    if resource is None:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def gigabytes(size: float) -> str:
    """Write a number of bytes, for example "1,234.5 GB"; a gigabyte is a billion bytes."""
    return f"{size / 1e9:,.1f} GB"


def out_of_memory(error: Exception) -> str | None:
    """Say that memory ran out, and how much was asked for where `error` tells: "Out of memory (3.2 GB at once)".

    None for any other error. Devices and libraries each have words of their own.
    """
    text = str(error)
    is_meant = isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(text) is not None
    if not (is_meant or isinstance(error, MemoryError)):
        return None
    found = _WANTED_BYTES.search(text)
    if found is None:
        return "Out of memory"
    return f"Out of memory ({gigabytes(int(found[1])) if found[1] else found[2] or found[3]} at once)"
