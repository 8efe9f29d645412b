"""The most memory that a run needed, for those who plan the next one."""

import sys

import torch

try:
    import resource
except ImportError:  # Windows keeps no such count
    resource = None  # type: ignore[assignment]


def peak_memory(device: torch.device) -> dict[str, int]:
    """Bytes: of this process, in which other runs may have gone before, and of the device where that is a GPU."""
    peaks = {}
    if resource is not None:
        unit = 1 if sys.platform == "darwin" else 1024
        peaks["process"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    if device.type == "cuda":
        peaks["device"] = torch.cuda.max_memory_allocated(device)
    return peaks
