"""The log of a run's evaluations: metrics.jsonl, a JSON object per line. This is its only writer and reader."""

import json
from pathlib import Path
from typing import Any

from ccp_dml.errors import UserError
from ccp_dml.foundation.digests import content_digest
from ccp_dml.foundation.files import from_json, write_text
from ccp_dml.records import layout
from ccp_dml.records.documents import refuse_changed_document

Row = dict[str, Any]


class EvaluationLog:
    """The lines of one run, in the order of training. A killed run may have torn the last one."""

    def __init__(self, run: Path) -> None:
        self.file = run / layout.METRICS

    def append(self, row: Row) -> None:
        """Add the line of one evaluation."""
        try:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise UserError(
                f"{self.file} cannot be written any more ({error.strerror}): the folder was removed, is read-only or "
                "the disk is full; what the folder holds is intact, and --resume goes on from there."
            ) from None

    def rows(self, *, may_be_torn: bool) -> list[Row]:
        """Read the evaluations of training, all lines but that of step 0.

        With `may_be_torn`, as while the run trains, a last line without its end is left out.
        """
        refuse_changed_document(self.file)
        lines = self._whole_lines() if may_be_torn else self._lines()
        return [row for number, line in enumerate(lines, start=1) if (row := self._row(line, number))["step"] > 0]

    def start(self) -> Row | None:
        """Read the line of step 0, the network before its first step; None where there is none."""
        lines = self._whole_lines()[:1]
        first = self._row(lines[0], 1) if lines else None
        return first if first is not None and first["step"] == 0 else None

    def last_step(self) -> int:
        """Tell the step of the last whole line; 0 where there is none."""
        lines = self._whole_lines()
        return int(self._row(lines[-1], len(lines))["step"]) if lines else 0

    def digest(self) -> str:
        """Digest the lines written so far."""
        return content_digest("".join(self._whole_lines()).encode())

    def forget_after(self, step: int, digest: str | None = None) -> None:
        """Drop the lines after `step`, where the checkpoint stands; raise if lines up to there are lost or changed.

        The checkpoint is written after the line: a kill in between leaves a line that will be written again. `digest`
        is that of the lines up to `step`; None where the checkpoint does not tell.
        """
        kept, last = [], 0
        for number, line in enumerate(self._whole_lines(), start=1):
            reached = self._row(line, number)["step"]
            if reached > step:
                break
            kept.append(line)
            last = reached
        if last != step:
            raise UserError(
                f"{self.file} has lost the lines up to step {step}, where the checkpoint stands; restore the file, or "
                "start another run."
            )
        if digest not in (None, content_digest("".join(kept).encode())):
            raise UserError(
                f"{self.file} is not what was written up to step {step}, where the checkpoint stands; restore the "
                "file, or start another run."
            )
        write_text(self.file, "".join(kept))

    def _lines(self) -> list[str]:
        if not self.file.is_file():
            return []
        return self.file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)

    def _whole_lines(self) -> list[str]:
        lines = self._lines()
        return lines if not lines or lines[-1].endswith("\n") else lines[:-1]

    def _row(self, line: str, number: int) -> Row:
        try:
            row = from_json(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            raise UserError(
                f"{self.file}, line {number} is damaged (not a JSON object with a whole number `step`); delete that "
                "line or resume the run."
            )
        return row
