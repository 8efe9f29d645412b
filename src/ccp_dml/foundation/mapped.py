"""Tensors that lie in files: the system holds in memory what is in use of them, and writes out the rest."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ccp_dml.errors import UserError
from ccp_dml.foundation.machine import gigabytes


class MappedFiles:
    """Makes tensors that lie in files of one folder.

    A file has no name any more as soon as it is mapped: nothing is left behind, however the process ends, and its room
    on the disk is free again when its tensor is. Room is reserved at once, so that a full disk is noticed here.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def zeros(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Make a tensor of zeros in a file of its own."""
        count = torch.Size(shape).numel()
        if count == 0:
            return torch.zeros(*shape, dtype=dtype)
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.folder, prefix=".mapped-", suffix=".part")
        try:
            os.posix_fallocate(handle, 0, count * dtype.itemsize)
            return torch.from_file(name, shared=True, size=count, dtype=dtype).view(*shape)
        except OSError as error:
            raise UserError(
                f"{self.folder} has no room for {gigabytes(count * dtype.itemsize)} ({error.strerror}); make room on "
                "the disk, or set `proxies_on_disk`=false."
            ) from None
        finally:
            os.close(handle)
            os.unlink(name)

    def copy(self, value: Tensor) -> Tensor:
        """Copy a tensor into a file of its own."""
        return self.zeros(value.shape, value.dtype).copy_(value.detach())
