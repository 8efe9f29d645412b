"""Keep in a folder what a benchmark or study was asked to do, so that only the same command continues it.

Each kind of folder has one file of plain values, and says which of them another command may change.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from ccp_dml.config.layers import differing, parse_settings
from ccp_dml.errors import UserError
from ccp_dml.foundation.files import write_text
from ccp_dml.records import layout
from ccp_dml.records.documents import read_toml
from ccp_dml.records.setting_groups import HOW_IT_RUNS, WHERE_DATA_ARE

Values = dict[str, Any]


@dataclass(frozen=True)
class RequestFile:
    """The file that holds the request of one kind of folder."""

    noun: str  # what such a folder holds, as messages call it
    name: str
    may_grow: str = ""  # tells a user what another command may change

    def read(self, folder: Path) -> Values | None:
        """Read the request of `folder`; None for a new one. Raise if the folder belongs to something else."""
        path = folder / self.name
        if not path.is_file():
            if folder.is_file() or (folder.is_dir() and any(one.name[0] != "." for one in folder.iterdir())):
                raise UserError(f"{folder} is not empty and holds no {self.noun}; give --out a new or empty folder.")
            return None
        return read_toml(path, remedy="restore it, or use another folder")

    def damaged(self, folder: Path, error: Exception) -> UserError:
        """Make the error of a request that lacks a value or holds a wrong one, which raised `error`."""
        reason = f"it does not say {error}" if isinstance(error, KeyError) else str(error)
        return UserError(f"{folder / self.name} is damaged ({reason}); restore it, or use another folder.")

    def write(self, folder: Path, values: Values) -> None:
        """Write the request, in place of an earlier one."""
        try:
            write_text(folder / self.name, tomli_w.dumps(values))
        except OSError as error:
            raise UserError(f"{folder} cannot be written ({error.strerror}); give --out another folder.") from None

    def refuse_other_settings(
        self, folder: Path, before: Sequence[str], after: Sequence[str], may_differ: Collection[str] = ()
    ) -> None:
        """Raise where `--set` settings differ, except for keys in `may_differ` and keys that change no result.

        Data may move: the digest that each run keeps tells whether they are the same.
        """
        but_for = {*HOW_IT_RUNS, *WHERE_DATA_ARE, *may_differ}
        for key, old, new in differing(parse_settings(before), parse_settings(after), but_for=but_for):
            self.refuse_other(folder, key, *("its default" if value is None else value for value in (old, new)))

    def refuse_other(self, folder: Path, key: str, before: object, after: object) -> None:
        """Raise where the value of `key` differs from that of the folder's request."""
        if before != after:
            raise UserError(
                f"{folder} holds a {self.noun} with {key} = {before}, not {after}; repeat its command to continue it"
                f"{self.may_grow}, or give --out another folder."
            )


BENCHMARK_REQUEST = RequestFile("benchmark", layout.BENCHMARK, may_grow=" (more methods or repeats may be added)")
STUDY_REQUEST = RequestFile("study", layout.STUDY, may_grow=" (more repeats or trials may be added)")
