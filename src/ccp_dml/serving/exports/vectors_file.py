"""Vectors of many images in one .npz file, written batch by batch: a killed command goes on where it stopped."""

import json
import os
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ccp_dml.data.features import UNREADABLE
from ccp_dml.data.splits import SPLITS
from ccp_dml.errors import UserError
from ccp_dml.foundation.digests import digest
from ccp_dml.foundation.files import atomic, from_json
from ccp_dml.foundation.locks import lock
from ccp_dml.serving.batch_journal import BatchJournal
from ccp_dml.serving.listed_images import ListedImage
from ccp_dml.serving.model import EmbeddingModel, OnError

NO_FILE = (-1, -1)
NEEDED = ("model", "paths", "features", "files", "listed")


@dataclass(frozen=True)
class Written:
    """What a finished file holds."""

    vectors: int
    dim: int
    begun_with: int  # images that an earlier, interrupted command had seen to
    skipped: list[tuple[Path, str]]
    notes: list[str]


@dataclass(frozen=True)
class StoredVectors:
    """What `ccp embed` wrote: images, their vectors (N, D), and the size and time that each file had then."""

    images: list[ListedImage]
    vectors: np.ndarray
    states: list[tuple[int, int]]

    def by_path(self) -> dict[Path, tuple[tuple[int, int], np.ndarray]]:
        """Map each file to its (bytes, mtime_ns) and vector (D,)."""
        rows = zip(self.images, self.states, self.vectors, strict=True)
        return {image.path: (state, vector) for image, state, vector in rows}


def write_vectors(
    model: EmbeddingModel,
    images: Sequence[ListedImage],
    out: Path,
    *,
    batch_size: int | None = None,
    on_error: OnError = "raise",
    report: Callable[[int, int], None] = lambda *_: None,
) -> Written:
    """Embed `images` into the file `out`, for `read_vectors` and `ccp train features`.

    Its keys are features (N, D), paths (N,), model (the digest), files (N, 2) with the size and time of each file,
    listed (bytes: a line of JSON per image) with label and attributes and, where all images have them, labels (N,) and
    split (N,).

    What is not finished lies in a folder beside `out`; the next call goes on behind it, as far as the images are the
    same in the same batches, and comes to the same bytes as one that was never interrupted. `report` is told how many
    images are done, of how many.
    """
    out = out.expanduser().absolute()
    if out.suffix != ".npz":
        raise UserError(f"{out.name} does not end with .npz, as the file of vectors must; rename it.")
    size = model.description.batch_size if batch_size is None else batch_size
    lock_file = out.with_name(f".{out.name}.lock")
    journal = BatchJournal(out.with_name(f".{out.name}.part"), model.dim)
    try:
        refuse_foreign(out)
        with lock(lock_file, f"{out} is being written by another process; wait for it to end."):
            states = [file_state(image.path) for image in images]
            contents = contents_of_batches(images, states, size)

            def still_wanted(number: int, batch: dict[str, Any]) -> bool:
                same = number < len(contents) and batch.get("contents") == contents[number]
                return same and (on_error == "skip" or not batch["skipped"])

            batches = journal.begin({"model": model.digest, "batch_size": size}, still_wanted)
            skipped = [(position, reason) for batch in batches for position, reason in batch["skipped"]]
            begun_with = min(len(batches) * size, len(images))
            report(begun_with, len(images))
            paths = [image.path for image in images]
            stream = model.embed_stream(paths[begun_with:], batch_size=size, on_error=on_error)
            for number, (positions, vectors) in enumerate(stream):
                first = begun_with + number * size
                done = min(first + size, len(images))
                missing = sorted(set(range(first, done)) - {begun_with + position for position in positions})
                reasons = [reason for _, reason in model.skipped[-len(missing) :]] if missing else []
                left_out = list(zip(missing, reasons, strict=True))
                journal.append(vectors, skipped=left_out, contents=contents[first // size])
                skipped += left_out
                report(done, len(images))
            notes = finish(out, model, images, states, journal.vectors(), {position for position, _ in skipped})
            journal.remove()
            lock_file.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"{out} cannot be written ({error.strerror or error}); make room, or give --out another."
        ) from None
    unread = [(images[position].path, reason) for position, reason in skipped]
    return Written(len(images) - len(unread), model.dim, begun_with, unread, notes)


def refuse_foreign(out: Path) -> None:
    """Refuse to replace what `write_vectors` did not write: it may be all that somebody has of it."""
    if out.exists() and not _is_of_vectors(out):
        raise UserError(
            f"{out} is there already and was not written by `ccp embed`; remove it, or give --out another place."
        )


def _is_of_vectors(file: Path) -> bool:
    """Tell whether a file is empty or has the arrays of `write_vectors`."""
    if not file.is_file():
        return False
    if file.stat().st_size == 0:
        return True
    try:
        with zipfile.ZipFile(file) as archive:
            return {f"{name}.npy" for name in NEEDED} <= set(archive.namelist())
    except (ValueError, *UNREADABLE):
        return False


def contents_of_batches(images: Sequence[ListedImage], states: Sequence[tuple[int, int]], size: int) -> list[str]:
    """Identify the files of each batch: its vectors are the same bit for bit only if all of them are."""
    files = [f"{os.fsencode(image.path)!r} {state}" for image, state in zip(images, states, strict=True)]
    return [digest(*files[first : first + size]) for first in range(0, len(files), size)]


def file_state(path: Path) -> tuple[int, int]:
    """Read a file's bytes and mtime_ns; one that is not there is for the model to complain about."""
    try:
        stat = path.stat()
    except OSError:
        return NO_FILE
    return stat.st_size, stat.st_mtime_ns


def finish(
    out: Path,
    model: EmbeddingModel,
    images: Sequence[ListedImage],
    states: Sequence[tuple[int, int]],
    vectors: np.ndarray,
    left_out: set[int],
) -> list[str]:
    """Write the file, and return what to tell about it."""
    kept = [position for position in range(len(images)) if position not in left_out]
    if not kept:
        raise UserError(f"none of the {len(images)} images can be read, so that {out} would be empty.")
    of_file = [images[position] for position in kept]
    columns, notes = known_columns(of_file)
    listed = [json.dumps({"label": image.label, "attributes": image.attributes}) for image in of_file]
    arrays: dict[str, Any] = {
        "paths": np.array([str(image.path) for image in of_file]),
        "model": np.array(model.digest),
        "files": np.array([states[position] for position in kept], dtype=np.int64),
        # As bytes: an array of texts would give each the room of the longest, and one long note fill the memory.
        "listed": np.frombuffer("\n".join(listed).encode(), dtype=np.uint8),
        **columns,
    }
    with atomic(out) as scratch, scratch.open("wb") as file:
        np.savez(file, features=vectors, **arrays)
    return notes


def known_columns(images: Sequence[ListedImage]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Make labels and split as training reads them, each only where all images have it, and what to tell otherwise."""
    labels = [image.label for image in images]
    splits = [image.attributes.get("split") for image in images]
    columns, notes = {}, []
    if all(label is not None for label in labels):
        columns["labels"] = np.array(labels)
    elif any(label is not None for label in labels):
        notes.append(
            f"{labels.count(None):,} of {len(images):,} images have no label, so that nothing can be trained on the "
            "file; `ccp index` reads it."
        )
    if all(split in SPLITS for split in splits):
        columns["split"] = np.array(splits)
    return columns, notes


def read_vectors(file: Path, model: EmbeddingModel) -> StoredVectors:
    """Read what `write_vectors` wrote; a UserError if it is of another model, or anything else."""
    arrays = _arrays(file.expanduser())
    written = str(arrays["model"])
    if written != model.digest:
        raise UserError(
            f"{file} holds vectors of another model ({written[:8]}) than {model.name} ({model.digest[:8]}); "
            "give the model that it was written with, or write it again with this one."
        )
    paths, vectors, states = arrays["paths"], arrays["features"], arrays["files"]
    fits = vectors.shape == (len(paths), model.dim) and states.shape == (len(paths), 2)
    if not fits or vectors.dtype != np.float32 or not np.isfinite(vectors).all():
        raise _damaged(file, "its vectors are not those of its images")
    try:
        stored = arrays["listed"]
        is_bytes = stored.dtype == np.uint8  # earlier versions wrote an array of texts
        known = [from_json(text) for text in (stored.tobytes().decode().split("\n") if is_bytes else stored.tolist())]
        listed = zip(paths.tolist(), known, strict=True)
        images = [ListedImage(Path(path), one["label"], one["attributes"]) for path, one in listed]
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(file, f"{type(error).__name__}: {error}") from None
    return StoredVectors(images, vectors, [(size, time) for size, time in states.tolist()])


def _arrays(file: Path) -> dict[str, np.ndarray]:
    if not file.is_file():
        raise UserError(f"There is no file {file}; write it with `ccp embed`.")
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in NEEDED if name in archive}
    except (ValueError, *UNREADABLE) as error:
        raise _damaged(file, str(error)) from None
    if lacking := [name for name in NEEDED if name not in arrays]:
        raise UserError(f"{file} has no array {lacking[0]!r}: it was not written by `ccp embed`; write one with it.")
    return arrays


def _damaged(file: Path, why: str) -> UserError:
    return UserError(f"{file} is damaged or no file of `ccp embed` ({why}); write it again with `ccp embed`.")
