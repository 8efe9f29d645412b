"""Vectors written batch by batch, with a line for each batch: a killed writer goes on after the last whole one."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ccp_dml.foundation.files import from_json, write_json

REQUEST, VECTORS, JOURNAL = "request.json", "vectors.f32", "batches.jsonl"


class BatchJournal:
    """Vectors on the disk and a line for each batch: the line is written last, so what it speaks of is there.

    Args:
        folder: where they lie; it is for one writer at a time.
        dim: D, the length of a vector.
    """

    def __init__(self, folder: Path, dim: int) -> None:
        self.folder, self.dim = folder, dim
        self.rows = 0

    def begin(
        self, request: dict[str, Any], still_wanted: Callable[[int, dict[str, Any]], bool] = lambda *_: True
    ) -> list[dict[str, Any]]:
        """Cut off what cannot be used any more, and read what was noted with each batch that stays.

        Nothing stays of another `request`. Otherwise batches stay up to the first one that is not whole, or that is not
        `still_wanted`, which is told the batch's number and its note.
        """
        if _read_json(self.folder / REQUEST) != request:
            self.remove()
            self.folder.mkdir(parents=True)
            write_json(self.folder / REQUEST, request)
        for name in (VECTORS, JOURNAL):
            (self.folder / name).touch()
        row_bytes = self.dim * np.dtype(np.float32).itemsize
        available = (self.folder / VECTORS).stat().st_size
        kept = 0
        notes: list[dict[str, Any]] = []
        with (self.folder / JOURNAL).open("rb") as journal:
            for line in journal:
                batch = _parsed(line)
                if batch is None or (self.rows + batch["rows"]) * row_bytes > available:
                    break
                if not still_wanted(len(notes), batch):
                    break
                kept, self.rows = kept + len(line), self.rows + batch["rows"]
                notes.append(batch)
        os.truncate(self.folder / JOURNAL, kept)
        os.truncate(self.folder / VECTORS, self.rows * row_bytes)
        return notes

    def append(self, vectors: np.ndarray, **note: Any) -> None:
        """Add a batch (B, D) and what to note with it; on the disk when this returns."""
        _append(self.folder / VECTORS, vectors.tobytes())
        _append(self.folder / JOURNAL, json.dumps({"rows": len(vectors), **note}).encode() + b"\n")
        self.rows += len(vectors)

    def vectors(self) -> np.ndarray:
        """Map the vectors (N, D) from the disk."""
        if self.rows == 0:
            return np.empty((0, self.dim), dtype=np.float32)
        return np.memmap(self.folder / VECTORS, dtype=np.float32, mode="r", shape=(self.rows, self.dim))

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _append(file: Path, content: bytes) -> None:
    with file.open("ab") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Parse a batch's line; None for one that a kill cut off."""
    try:
        batch = from_json(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return batch if isinstance(batch, dict) and isinstance(batch.get("rows"), int) else None


def _read_json(file: Path) -> Any:
    try:
        return from_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
