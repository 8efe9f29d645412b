"""Tell which of several machines may write a run's folder, also when one of them was thought dead.

A cluster gives a run to another machine when the first is not heard of any more. The first may only have been cut off,
and go on training. So whoever is given a run puts a token of its own beside the folder, and writes only as long as that
token lies there. The lock of `foundation.locks` stands behind this: it settles who writes in one and the same moment.
"""

import uuid
from dataclasses import dataclass, field
from pathlib import Path

from ccp_dml.foundation.files import write_text


class TakenOver(Exception):
    """The run belongs to another process now; this one may not write any more."""


@dataclass(frozen=True)
class Ownership:
    """The right to write the run in `folder`, until somebody else claims it."""

    folder: Path
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def file(self) -> Path:
        """Name the file of the owner's token, beside the folder, as that may not exist yet."""
        whole = self.folder.resolve()
        return whole.parent / f".{whole.name}.owner"

    def claim(self) -> None:
        """Take the run over from whoever has it."""
        write_text(self.file, self.token)

    def holds(self) -> bool:
        """Tell whether the run is still ours. A token that was removed belongs to nobody."""
        try:
            return self.file.read_text(encoding="utf-8") == self.token
        except FileNotFoundError:
            return False

    def require(self) -> None:
        if not self.holds():
            raise TakenOver(f"{self.folder} was taken over by another process, which goes on with it.")

    def release(self) -> None:
        """Remove the token, if it is still ours."""
        if self.holds():
            self.file.unlink(missing_ok=True)
