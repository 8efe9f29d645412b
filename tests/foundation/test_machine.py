import os
import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ccp_dml.foundation import machine


@pytest.fixture
def in_groups(tmp_path, monkeypatch):
    """Put this process into control groups: what /proc/self/cgroup says, and the files below /sys/fs/cgroup."""
    monkeypatch.setattr(machine, "_OWN_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "groups")

    def put(groups, **files):
        (tmp_path / "cgroup").write_text(groups)
        for name, text in files.items():
            file = tmp_path / "groups" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    return put


OF_VERSION_1 = "4:memory:/docker/f00\n3:cpuacct,cpu:/docker/f00\n1:name=systemd:/docker/f00\n0::/docker/f00\n"


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "250000 100000\n"}, 3),
        ("0::/\n", {"cpu.max": "10000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 64),
        ("0::/\n", {"cpu.max": "6400000 50000\n"}, 64),
        ("0::/a.slice/b.scope\n", {"a.slice/cpu.max": "300000 100000", "a.slice/b.scope/cpu.max": "max 100000"}, 3),
        ("0::/../other\n", {"cpu.max": "300000 100000"}, 3),
        (OF_VERSION_1, {"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "50000\n"}, 3),
        (OF_VERSION_1, {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "50000\n"}, 64),
        (OF_VERSION_1, {"cpu/docker/f00/cpu.cfs_quota_us": "20000", "cpu/docker/f00/cpu.cfs_period_us": "10000"}, 2),
        (OF_VERSION_1, {"cpu/cpu.cfs_quota_us": "50000\n"}, 64),
        ("0::/\n", {"cpu.max": ""}, 64),
    ],
)
def test_cores_of_a_container_are_those_that_it_may_use(monkeypatch, in_groups, groups, files, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    in_groups(groups, **files)
    assert machine.usable_cores() == cores


@pytest.mark.parametrize(
    ("groups", "files", "memory"),
    [
        ("0::/\n", {"memory.max": "4000000\n"}, 4_000_000),
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("0::/\n", {"memory.max": ""}, None),
        ("0::/a/b\n", {"a/memory.max": "5000000", "a/b/memory.max": "6000000"}, 5_000_000),
        (OF_VERSION_1, {"memory/memory.limit_in_bytes": "7000000\n"}, 7_000_000),
        (OF_VERSION_1, {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        (OF_VERSION_1, {"cpu/memory.limit_in_bytes": "7000000\n"}, None),
    ],
)
def test_memory_of_a_container_is_what_it_may_use(in_groups, groups, files, memory):
    in_groups("")
    of_machine = machine.machine_memory()
    in_groups(groups, **files)
    assert machine.machine_memory() == (of_machine if memory is None else memory)


def test_a_machine_knows_its_memory_or_says_so(monkeypatch):
    assert machine.machine_memory() is None or machine.machine_memory() > 10**8
    monkeypatch.delattr(os, "sysconf")
    assert machine.machine_memory() is None


def test_only_cores_that_the_process_may_use_count(monkeypatch, in_groups):
    in_groups("")
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


def test_memory_that_nobody_counted_is_not_named():
    assert machine.out_of_memory(MemoryError()) == "Out of memory"
    assert machine.out_of_memory(RuntimeError("sizes do not match")) is None


FAULTS = """
import resource, sys
import torch
from ccp_dml.foundation.machine import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
for number in range(60):
    torch.ones(20_000_000)  # 80 MB, and gone again
    if number == 9:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep memory")
def test_kept_memory_need_not_be_cleared_again():
    environment = {name: value for name, value in os.environ.items() if name not in machine._CHOSEN_BY_THE_USER}

    def faults(how):
        command = [sys.executable, "-c", FAULTS, how]
        return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)

    assert faults("keep") * 10 < faults("let go")


def test_memory_is_left_to_the_user_and_to_other_systems(monkeypatch):
    for name in machine._CHOSEN_BY_THE_USER:
        monkeypatch.delenv(name, raising=False)
    options = []
    monkeypatch.setattr(machine.sys, "platform", "linux")
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=lambda *given: options.append(given)))
    assert not machine.keep_freed_memory(), "the library refused"
    assert options == [(-3, 1 << 30)]
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda _: SimpleNamespace())
    assert not machine.keep_freed_memory(), "another C library"
    monkeypatch.undo()
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda _: pytest.fail("must not be asked"))
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000")
    assert not machine.keep_freed_memory()
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_")
    monkeypatch.setattr(machine.sys, "platform", "darwin")
    assert not machine.keep_freed_memory()


PEAKS = """
import torch
from ccp_dml.foundation.machine import MemoryPeak, keep_freed_memory
keep_freed_memory()
for size in (100_000_000, 10_000_000):
    peak = MemoryPeak()
    torch.ones(size)
    print(peak.read())
"""


@pytest.mark.skipif(not machine._SET_BACK.exists(), reason="only Linux can set the mark back")
def test_each_peak_of_memory_is_its_own():
    printed = subprocess.run([sys.executable, "-c", PEAKS], capture_output=True, text=True, check=True).stdout
    first, second = map(int, printed.split())
    assert first - second > 300_000_000  # of the 360 MB by which the tensors differ


def test_a_mark_that_cannot_be_set_back_tells_a_peak_only_if_it_rises(monkeypatch, tmp_path):
    marks = iter([1000, 1000, 1000, 1200])
    monkeypatch.setattr(machine, "_SET_BACK", tmp_path / "none" / "clear_refs")
    monkeypatch.setattr(machine, "_STATUS", tmp_path / "status")
    monkeypatch.setattr(machine.sys, "platform", "darwin")
    usage = SimpleNamespace(getrusage=lambda _: SimpleNamespace(ru_maxrss=next(marks)), RUSAGE_SELF=0)
    monkeypatch.setattr(machine, "resource", usage)
    assert [machine.MemoryPeak().read() for _ in range(2)] == [None, 1200]
    monkeypatch.setattr(machine, "resource", None)
    assert machine.MemoryPeak().read() is None
