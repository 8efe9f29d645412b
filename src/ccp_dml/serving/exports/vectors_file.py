"""Vectors of many images in one .npz file, written batch by batch: a killed command goes on where it stopped."""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ccp_dml.data.splits import SPLITS
from ccp_dml.errors import UserError
from ccp_dml.foundation.digests import digest
from ccp_dml.foundation.files import atomic, write_json
from ccp_dml.foundation.locks import lock
from ccp_dml.serving.listed_images import ListedImage
from ccp_dml.serving.model import EmbeddingModel, OnError

REQUEST, VECTORS, JOURNAL = "request.json", "vectors.f32", "batches.jsonl"


@dataclass(frozen=True)
class Written:
    """What a finished file holds."""

    vectors: int
    dim: int
    begun_with: int  # images that an earlier, interrupted command had seen to
    skipped: list[tuple[Path, str]]
    notes: list[str]


def write_vectors(
    model: EmbeddingModel,
    images: Sequence[ListedImage],
    out: Path,
    *,
    batch_size: int | None = None,
    on_error: OnError = "raise",
    report: Callable[[int, int], None] = lambda *_: None,
) -> Written:
    """Embed `images` into the file `out` with the keys features (N, D), paths (N,), model (the digest) and, where all
    images have them, labels (N,) and split (N,).

    What is not finished lies in a folder beside `out`; the same call goes on behind it, to the same bytes. `report` is
    told how many images are done, of how many.
    """
    out = out.expanduser().absolute()
    if out.suffix != ".npz":
        raise UserError(f"{out.name} does not end with .npz, as the file of vectors must; rename it.")
    size = model.description.batch_size if batch_size is None else batch_size
    scratch, lock_file = out.with_name(f".{out.name}.part"), out.with_name(f".{out.name}.lock")
    try:
        with lock(lock_file, f"{out} is being written by another process; wait for it to end."):
            unfinished = Unfinished(scratch, model.dim, size)
            begun_with = unfinished.begin(request_of(model, images, size, on_error), len(images))
            report(begun_with, len(images))
            paths = [image.path for image in images]
            stream = model.embed_stream(paths[begun_with:], batch_size=size, on_error=on_error)
            for number, (positions, vectors) in enumerate(stream):
                first = begun_with + number * size
                done = min(first + size, len(images))
                missing = sorted(set(range(first, done)) - {begun_with + position for position in positions})
                reasons = [reason for _, reason in model.skipped[-len(missing) :]] if missing else []
                unfinished.append(vectors, list(zip(missing, reasons, strict=True)))
                report(done, len(images))
            written = finish(unfinished, model, images, out, begun_with)
            shutil.rmtree(scratch)
            lock_file.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"{out} cannot be written ({error.strerror or error}); make room, or give --out another."
        ) from None
    return written


def request_of(model: EmbeddingModel, images: Sequence[ListedImage], size: int, on_error: str) -> dict[str, Any]:
    """Describe what was asked for; an unfinished file is continued only if it was asked for the same."""
    return {"model": model.digest, "images": digest(*map(_state, images)), "batch_size": size, "on_error": on_error}


def _state(image: ListedImage) -> str:
    """Digest the state of an image file; a file that is not there is for the model to complain about."""
    try:
        stat = image.path.stat()
    except OSError:
        return f"{os.fsencode(image.path)!r}"
    return f"{os.fsencode(image.path)!r} {stat.st_size} {stat.st_mtime_ns}"


class Unfinished:
    """Vectors on the disk and a line for each batch: the line is written last, so what it speaks of is there."""

    def __init__(self, folder: Path, dim: int, batch_size: int) -> None:
        self.folder, self.batch_size = folder, batch_size
        self.row_bytes = dim * np.dtype(np.float32).itemsize
        self.skipped: list[tuple[int, str]] = []
        self.rows = 0

    def begin(self, request: dict[str, Any], images: int) -> int:
        """Count the images that are done already. What was asked for otherwise, or lost its end, is cut off."""
        if _read_json(self.folder / REQUEST) != request:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            write_json(self.folder / REQUEST, request)
        for name in (VECTORS, JOURNAL):
            (self.folder / name).touch()
        available = (self.folder / VECTORS).stat().st_size
        kept, batches = 0, 0
        with (self.folder / JOURNAL).open("rb") as journal:
            for line in journal:
                batch = _parsed(line)
                if batch is None or (self.rows + batch["rows"]) * self.row_bytes > available:
                    break
                kept, batches, self.rows = kept + len(line), batches + 1, self.rows + batch["rows"]
                self.skipped += [(position, reason) for position, reason in batch["skipped"]]
        os.truncate(self.folder / JOURNAL, kept)
        os.truncate(self.folder / VECTORS, self.rows * self.row_bytes)
        return min(batches * self.batch_size, images)

    def append(self, vectors: np.ndarray, skipped: Sequence[tuple[int, str]]) -> None:
        """Add a batch; on the disk when this returns."""
        _append(self.folder / VECTORS, vectors.tobytes())
        line = json.dumps({"rows": len(vectors), "skipped": skipped})
        _append(self.folder / JOURNAL, line.encode() + b"\n")
        self.rows += len(vectors)
        self.skipped += skipped

    def vectors(self, dim: int) -> np.ndarray:
        """Map the vectors (N, D) from the disk."""
        if self.rows == 0:
            return np.empty((0, dim), dtype=np.float32)
        return np.memmap(self.folder / VECTORS, dtype=np.float32, mode="r", shape=(self.rows, dim))


def finish(
    unfinished: Unfinished, model: EmbeddingModel, images: Sequence[ListedImage], out: Path, begun_with: int
) -> Written:
    left_out = {position for position, _ in unfinished.skipped}
    kept = [image for position, image in enumerate(images) if position not in left_out]
    if not kept:
        raise UserError(f"none of the {len(images)} images can be read, so that {out} would be empty.")
    columns, notes = known_columns(kept)
    arrays: dict[str, Any] = {
        "paths": np.array([str(image.path) for image in kept]),
        "model": np.array(model.digest),
        **columns,
    }
    with atomic(out) as scratch, scratch.open("wb") as file:
        np.savez(file, features=unfinished.vectors(model.dim), **arrays)
    skipped = [(images[position].path, reason) for position, reason in unfinished.skipped]
    return Written(len(kept), model.dim, begun_with, skipped, notes)


def known_columns(images: Sequence[ListedImage]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Make labels and split as training reads them, each only where all images have it, and what to tell otherwise."""
    labels = [image.label for image in images]
    splits = [image.attributes.get("split") for image in images]
    columns, notes = {}, []
    if all(label is not None for label in labels):
        columns["labels"] = np.array(labels)
    elif any(label is not None for label in labels):
        notes.append(f"{labels.count(None):,} of {len(images):,} images have no label, so that labels are left out.")
    if all(split in SPLITS for split in splits):
        columns["split"] = np.array(splits)
    return columns, notes


def _append(file: Path, content: bytes) -> None:
    with file.open("ab") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Parse a batch's line; None for one that a kill cut off."""
    try:
        batch = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return batch if isinstance(batch, dict) and {"rows", "skipped"} <= batch.keys() else None


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
