"""Locks between processes that vanish with the process that holds them, however it ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ccp_dml.errors import UserError


@contextmanager
def lock(
    file: Path, refusal: str, patience_seconds: float = 0.0, on_waiting: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Hold `file` alone while the block runs; its folder is made if need be.

    Whoever holds the lock may remove the file: those who wait for it then wait for its successor.

    Args:
        file: stands for the lock; it stays behind unless the holder removes it.
        refusal: the sentence of the UserError that is raised if another process does not let go in time.
        patience_seconds: how long to wait.
        on_waiting: called once, if there is somebody to wait for.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    refuse_link(file)
    held = FileLock(file)
    try:
        try:
            held.acquire(timeout=0)
        except Timeout:
            if patience_seconds > 0:
                on_waiting()
            held.acquire(timeout=patience_seconds)
    except Timeout:
        raise UserError(refusal) from None
    try:
        yield
    finally:
        held.release()


def refuse_link(file: Path) -> None:
    """Raise if a lock is a link: it would be made wherever somebody wants it."""
    if file.is_symlink():
        raise UserError(f"{file} is a link, and locks are none; remove it, or work in another folder.")


@contextmanager
def alone_in(folder: Path, patience_seconds: float = 0.0, doing: str = "trained") -> Iterator[None]:
    """Let no other process write in `folder`. The lock lies beside it, as the folder may not exist yet.

    `doing` says in messages what is done to it.
    """
    whole = folder.resolve()  # "." has no name
    file = whole.parent / f".{whole.name}.lock"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        refuse_link(file)
        file.touch()
    except OSError as error:
        raise UserError(f"{folder} cannot be written ({error.strerror}); give --out another folder.") from None
    refusal = f"{folder} is being {doing} by another process; wait for it to end, or give --out another folder."
    with lock(file, refusal, patience_seconds):
        try:
            yield
        finally:
            file.unlink(missing_ok=True)
