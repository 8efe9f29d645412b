"""Find out whether a folder is shared by the machines of a cluster in the way that runs need."""

import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from ccp_dml.errors import UserError
from ccp_dml.foundation.files import write_text
from ccp_dml.foundation.locks import lock

TOKEN, LOCK = "token", "lock"


@dataclass(frozen=True)
class Probe:
    """What a machine must find: files that another machine wrote, and a lock that it holds."""

    folder: Path  # within the folder to be shared
    token: str
    working_folder: Path  # where the command was typed; relative paths start there
    version: str  # of ccp-dml

    def missing_here(self) -> str | None:
        """Say what this machine lacks, in a sentence; None: nothing."""
        host = self.here()
        if version("ccp-dml") != self.version:
            return (
                f"{host} has ccp-dml {version('ccp-dml')}, and {self.version} is wanted; install the same everywhere."
            )
        if not self.working_folder.is_dir():
            return f"{host} has no folder {self.working_folder}, where the command was typed; use a shared one."
        try:
            seen = (self.folder / TOKEN).read_text(encoding="utf-8")
        except OSError:
            seen = ""
        if seen != self.token:
            return f"{host} does not see {self.folder.parent}; give --out a folder that all machines share."
        try:
            self._rename_over(self.folder / host)
        except OSError as error:
            return f"{host} cannot replace files in {self.folder.parent} ({error.strerror}); make it writable there."
        if self._lock_is_free():
            return (
                f"{host} does not see locks of other machines in {self.folder.parent}; mount it with locks (NFS: "
                "version 4, or without the options nolock and local_lock)."
            )
        return None

    @staticmethod
    def here() -> str:
        """Name this machine, as its file in the probe is named."""
        return socket.gethostname()

    def _rename_over(self, file: Path) -> None:
        """Leave the token in `file`, which held something else before."""
        write_text(file, "to be replaced")
        write_text(file, self.token)

    def _lock_is_free(self) -> bool:
        try:
            with lock(self.folder / LOCK, "held"):
                return True
        except UserError:
            return False

    def missing_of(self, host: str) -> str | None:
        """Say what another machine's file lacks as it is seen here; ask when `missing_here` has said None there."""
        try:
            seen = (self.folder / host).read_text(encoding="utf-8")
        except OSError:
            seen = ""
        if seen != self.token:
            return (
                f"Files that {host} replaces in {self.folder.parent} are not seen here; a shared disk must show them."
            )
        return None


@contextmanager
def probe_in(folder: Path) -> Iterator[Probe]:
    """Lay out a probe in `folder`, and hold its lock; both are gone when the block ends."""
    token = secrets.token_hex(16)
    place = folder.resolve() / f".probe-{token}"
    place.mkdir(parents=True)
    try:
        write_text(place / TOKEN, token)
        with lock(place / LOCK, f"{place / LOCK} is held by somebody else, which cannot be."):
            yield Probe(place, token, Path(os.getcwd()), version("ccp-dml"))
    finally:
        shutil.rmtree(place, ignore_errors=True)
