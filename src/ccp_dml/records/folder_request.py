"""What was asked of a folder, kept in it so that the same command continues it and no other does.

Benchmarks and studies share it: each has a file of plain values, and says which of them may differ.
"""

import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from ccp_dml.config.layers import differing, flatten, parse_setting
from ccp_dml.errors import UserError
from ccp_dml.foundation.files import write_text
from ccp_dml.records.logbook import HOW_IT_RUNS

Values = dict[str, Any]


@dataclass(frozen=True)
class FolderRecord:
    """The file `file` of a folder that belongs to a `noun`; `may_grow` tells a user what another command may change."""

    noun: str
    file: str
    may_grow: str = ""

    def read(self, folder: Path) -> Values | None:
        """What the folder was asked to hold; None for a new one."""
        path = folder / self.file
        if not path.is_file():
            if folder.is_file() or (folder.is_dir() and any(one.name[0] != "." for one in folder.iterdir())):
                raise UserError(f"{folder} is not empty and holds no {self.noun}; give --out a new or empty folder.")
            return None
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise self.damaged(folder, error) from None

    def damaged(self, folder: Path, error: Exception) -> UserError:
        return UserError(f"{folder / self.file} is damaged ({error}); restore it, or give --out another folder.")

    def write(self, folder: Path, values: Values) -> None:
        try:
            write_text(folder / self.file, tomli_w.dumps(values))
        except OSError as error:
            raise UserError(f"{folder} cannot be written ({error.strerror}); give --out another folder.") from None

    def refuse_other_settings(
        self, folder: Path, before: Sequence[str], after: Sequence[str], may_differ: Collection[str] = ()
    ) -> None:
        """Raise where `--set` settings differ, but for those that decide nothing about a result."""
        for key, old, new in differing(by_key(before), by_key(after), but_for={*HOW_IT_RUNS, *may_differ}):
            self.refuse_other(folder, key, *("its default" if value is None else value for value in (old, new)))

    def refuse_other(self, folder: Path, key: str, before: object, after: object) -> None:
        if before != after:
            raise UserError(
                f"{folder} holds a {self.noun} with {key} = {before}, not {after}; repeat its command to continue it"
                f"{self.may_grow}, or give --out another folder."
            )


def by_key(settings: Sequence[str]) -> Values:
    """Dotted keys and values; of a key that is set twice, the last one counts."""
    return {key: value for text in settings for key, value in flatten(parse_setting(text).tables)}
