"""Locks that vanish with the process that holds them, however it ends."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from ccp_dml.errors import UserError


@contextmanager
def lock(
    file: Path, refusal: str, patience_seconds: float = 0.0, on_waiting: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Hold `file` alone; a UserError with the sentence `refusal` if another process does not let go of it in time.

    `on_waiting` is called where there is one to wait for.
    Whoever holds the lock may remove the file: those who wait for it then wait for its successor.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    deadline, is_waiting = monotonic() + patience_seconds, False
    while True:
        with file.open("a") as handle:
            while not _taken(handle.fileno()):
                if monotonic() >= deadline:
                    raise UserError(refusal)
                if not is_waiting:
                    is_waiting = True
                    on_waiting()
                sleep(0.05)
            if _is_open_at(file, handle.fileno()):
                yield
                return


@contextmanager
def alone_in(folder: Path, patience_seconds: float = 0.0) -> Iterator[None]:
    """Let no other process train the run in `folder`. The lock lies beside it, as the folder may not exist yet."""
    whole = folder.resolve()  # "." has no name
    file = whole.parent / f".{whole.name}.lock"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    except OSError as error:
        raise UserError(f"{folder} cannot be written ({error.strerror}); give --out another folder.") from None
    with lock(file, f"{folder} is being trained by another process; wait for it to end.", patience_seconds):
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


def _is_open_at(file: Path, descriptor: int) -> bool:
    """Whether the open file is still the one that its path leads to."""
    try:
        return os.path.samestat(file.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
