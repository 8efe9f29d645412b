"""Disturb a process at its k-th event on the disk, or at a size of its files: a kill, a full disk, a signal, a clock.

An event is a call that changes what is on the disk. What C code writes (SQLite, torch, numpy) makes no events; a limit
on the size of files reaches it, too: the kernel cuts the write in the middle, and then refuses it, or kills.
"""

import builtins
import errno
import io
import itertools
import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

KILLED = 137
NEED_ROOM = ("replace", "rename", "fsync", "mkdir", "link", "symlink", "truncate")
OTHERS = ("unlink", "rmdir", "chmod")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Disturbance:
    """What happens to a process, and the exit codes that are a good end of it; 0 is one if it came to nothing."""

    name: str
    prepare: Callable[[], None]  # called in the process, before its work
    ends: tuple[int, ...]
    clear: bool = False  # the process must say in a sentence what was wrong


def kill_at(event: int) -> Disturbance:
    return Disturbance(f"a kill at event {event}", lambda: at_event(event, lambda: os._exit(KILLED)), (KILLED,))


def kill_within_a_write(size: int) -> Disturbance:
    """Kill a process as soon as it writes the byte behind the first `size` of any file."""
    return Disturbance(
        f"a kill within a write, at byte {size}", lambda: limit_files(size, signal.SIG_DFL), (-signal.SIGXFSZ,)
    )


def full_at(event: int) -> Disturbance:
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return Disturbance(f"a full disk at event {event}", lambda: at_event(event, full, only=NEED_ROOM), (2,), clear=True)


def full_within_a_write(size: int) -> Disturbance:
    return Disturbance(
        f"a full disk at byte {size} of a file", lambda: limit_files(size, signal.SIG_IGN), (2,), clear=True
    )


def signal_at(event: int, number: int) -> Disturbance:
    """Send a process a signal; before it listens to signals, they end it as they end any process."""

    def prepare() -> None:
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(one, signal.default_int_handler if one == signal.SIGINT else signal.SIG_DFL)
        at_event(event, lambda: os.kill(os.getpid(), number))

    return Disturbance(f"{signal.Signals(number).name} at event {event}", prepare, (130, -number))


def clock_jumps_at(event: int, seconds: float) -> Disturbance:
    def jump() -> None:
        now, now_ns = time.time, time.time_ns
        time.time = lambda: now() + seconds
        time.time_ns = lambda: now_ns() + round(seconds * 1e9)

    return Disturbance(f"a clock that jumps by {seconds} s at event {event}", lambda: at_event(event, jump), ())


def at_event(number: int, act: Callable[[], None], only: tuple[str, ...] = (*NEED_ROOM, *OTHERS)) -> None:
    """Let this process `act` before its `number`-th event."""
    counter = itertools.count(1)

    def watched(call: Callable[..., Any], counts: Callable[..., bool] = lambda *_, **__: True) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            if counts(*arguments, **options) and next(counter) == number:
                act()
            return call(*arguments, **options)

        return wrapped

    def opens_for_writing(file: Any, mode: Any = "r", *_: Any, **__: Any) -> bool:
        return isinstance(mode, str) and any(letter in mode for letter in "wax+") and is_on_disk(file)

    def makes(path: Any, flags: int, *_: Any, **__: Any) -> bool:
        return bool(flags & WRITING) and is_on_disk(path)

    for name in only:
        setattr(os, name, watched(getattr(os, name)))
    io.open = builtins.open = watched(builtins.open, opens_for_writing)
    os.open = watched(os.open, makes)


def is_on_disk(file: Any) -> bool:
    return not isinstance(file, int) and os.fsdecode(file) != os.devnull


def limit_files(size: int, then: Any) -> None:
    """Let no file of this process grow beyond `size` bytes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, then)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
