"""Locks that vanish with the process that holds them, however it ends."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from ccp_dml.errors import UserError


@contextmanager
def lock(file: Path, refusal: str, patience_seconds: float = 0.0) -> Iterator[None]:
    """Hold `file` alone; a UserError with the sentence `refusal` if another process does not let go of it in time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    deadline = monotonic() + patience_seconds
    with file.open("a") as handle:
        while not _taken(handle.fileno()):
            if monotonic() >= deadline:
                raise UserError(refusal)
            sleep(0.05)
        yield


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
