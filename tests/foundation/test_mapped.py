"""Tensors in files."""

import errno
import os

import pytest
import torch

from ccp_dml.errors import UserError
from ccp_dml.foundation.mapped import MappedFiles


def test_a_tensor_in_a_file_is_like_any_other_and_leaves_nothing_behind(tmp_path):
    files = MappedFiles(tmp_path / "run")
    value = files.zeros((5, 2, 3), torch.float64)
    assert torch.equal(value, torch.zeros(5, 2, 3, dtype=torch.float64))
    value += 1.5
    copy = files.copy(value)
    value.zero_()
    assert torch.equal(copy, torch.full((5, 2, 3), 1.5, dtype=torch.float64))
    assert list((tmp_path / "run").iterdir()) == []
    assert files.zeros((0, 4)).shape == (0, 4)


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs Linux's list of mapped files")
def test_it_really_lies_in_a_file(tmp_path):
    value = MappedFiles(tmp_path).zeros((1000, 100))
    with open("/proc/self/maps") as maps:
        assert str(tmp_path) in maps.read()
    assert value.shape == (1000, 100)


def test_a_full_disk_is_told(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(UserError, match=r"no room for 4\.0 GB"):
        MappedFiles(tmp_path).zeros((1_000_000, 1000))
    assert list(tmp_path.iterdir()) == []
