import os

import pytest

from ccp_dml.foundation import machine


def test_a_machine_knows_its_memory_or_says_so(monkeypatch):
    assert machine.machine_memory() is None or machine.machine_memory() > 10**8
    monkeypatch.delattr(os, "sysconf")
    assert machine.machine_memory() is None


def test_only_cores_that_the_process_may_use_count(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3, 5}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert machine.usable_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert machine.usable_cores() == 64
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert machine.usable_cores() == 1


@pytest.mark.parametrize(("size", "text"), [(0, "0.0 GB"), (8_123_000_000, "8.1 GB"), (2.5e12, "2,500.0 GB")])
def test_a_gigabyte_is_a_billion_bytes(size, text):
    assert machine.gigabytes(size) == text
