"""Describe what a command runs with: the versions of its packages, and the machine."""

import os
import platform
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from ccp_dml.foundation.process_group import current

PACKAGES = ("ccp-dml", "torch", "torchvision", "timm", "lightning-fabric", "pytorch-metric-learning", "numpy", "pillow")


def environment(command: Sequence[str]) -> dict[str, Any]:
    """Describe command, software and machine: what a reader needs to repeat the run or to explain a difference."""
    return {
        "command": shlex.join(command),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: installed(name) for name in PACKAGES},
        "cpu_threads": torch.get_num_threads(),
        "cpu_count": os.cpu_count(),
        "cuda": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "processes": current().count,
        "executable": Path(sys.executable).name,
    }


def installed(name: str) -> str | None:
    """Tell the version of an installed package; None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
