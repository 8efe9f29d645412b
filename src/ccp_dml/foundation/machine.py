"""What this machine has: the cores and the memory that a process may use."""

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from math import ceil
from pathlib import Path

try:
    import resource
except ImportError:  # Windows keeps no such count
    resource = None  # type: ignore[assignment]

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # of glibc's mallopt
_LARGEST_KEPT = 1 << 30  # bytes of a block
_STATUS, _SET_BACK = Path("/proc/self/status"), Path("/proc/self/clear_refs")  # of Linux
_OWN_GROUPS, _GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")  # where Linux limits containers
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
    """Count the processor cores that this process may use; a container's part of a core counts as one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([cores, *(max(1, ceil(quota)) for quota in _core_quotas())])


def machine_memory() -> int | None:
    """Tell the memory in bytes that this process may use: the machine's, or less where a container has a limit.

    None where the system does not say.
    """
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None
    limits = (*_limits("memory", "memory.max"), *_limits("memory", "memory.limit_in_bytes"))
    return min([memory, *(int(words[0]) for words in limits if words and words[0].isdecimal())])


def _core_quotas() -> Iterator[float]:
    """List how many cores the control groups of this process may use."""
    for words in (*_limits("cpu", "cpu.max"), *_limits("cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us")):
        match words:
            case [quota, period] if quota.isdecimal() and period.isdecimal():  # not "max" and -1, which are no limit
                yield int(quota) / max(1, int(period))


def _limits(controller: str, *files: str) -> Iterator[list[str]]:
    """Read the words in `files` of the control groups that this process is in, and of those around them.

    Version 2 of control groups has one tree, version 1 one for each controller. A container may see its own group as
    the root, whatever the system calls it: names that lead nowhere are passed over.
    """
    with suppress(OSError):  # not Linux
        for line in _OWN_GROUPS.read_text(encoding="utf-8", errors="replace").splitlines():
            _, controllers, name = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            root, group = _GROUPS / controller if controllers else _GROUPS, Path(name.lstrip("/"))
            for folder in (group, *group.parents):
                with suppress(OSError):
                    yield [word for file in files for word in (root / folder / file).read_text("ascii").split()]


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
