"""What this machine has: the cores and the memory that a process may use."""

import os


def usable_cores() -> int:
    """Count the processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_memory() -> int | None:
    """Tell the memory of this machine in bytes; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None


def gigabytes(size: float) -> str:
    """Write a number of bytes, for example "1,234.5 GB"; a gigabyte is a billion bytes."""
    return f"{size / 1e9:,.1f} GB"
