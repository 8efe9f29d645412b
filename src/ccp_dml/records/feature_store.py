"""The feature cache: a frozen backbone's features on disk, in entries that are whole or marked as unfinished.

An entry's name is a digest of everything its numbers depend on, so that a changed image, transform or weight looks for
another entry. Its features are one plain file of half or single precision, filled block by block of images, in all
their views: what a killed process has written is kept, and the next one goes on behind it.
"""

import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ccp_dml.errors import UserError
from ccp_dml.foundation.digests import file_digest
from ccp_dml.foundation.files import cache_home, from_json, write_json
from ccp_dml.foundation.locks import lock

FORMAT = 1
HEADER = "entry.json"
FILES = {np.dtype(np.float16): "features.f16", np.dtype(np.float32): "features.f32"}
DONE = "images_done"  # in the header of an unfinished entry
PART = ".part"
NAME = re.compile(r"[0-9a-f]{32}(\.part)?")
SECONDS_FOR_ANOTHER_PROCESS = 24 * 3600.0


@dataclass(frozen=True)
class CachedFeatures:
    """One entry of the cache, as `ccp cache` shows it."""

    key: str
    folder: Path
    size: int  # bytes
    is_complete: bool
    description: dict[str, Any]  # what was seen, by what; empty where the header cannot be read


class FeatureStore:
    """The cache below the folder `root`; by default it is in the user's cache folder."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = cache_home() / "features" if root is None else root

    def read(self, key: str, shape: tuple[int, ...], dtype: DTypeLike = np.float16) -> np.ndarray | None:
        """Map the features of an entry from disk; None if there is no such entry. A key has one shape and dtype."""
        folder = self.root / key
        if not folder.is_dir():
            return None
        header = _header(folder)
        if header and header.get("format") != FORMAT:
            raise UserError(
                f"the feature cache {folder} was written by another version (format {header.get('format')}, not "
                f"{FORMAT}): {self._remedy(key)}, or set run.cache to another folder"
            )
        file = folder / FILES[np.dtype(dtype)]
        if header.get("shape") != list(shape) or not file.is_file() or file_digest(file) != header.get("digest"):
            raise UserError(
                f"the feature cache {folder} is damaged, its content is not what was written: {self._remedy(key)}"
            )
        return np.memmap(file, dtype=dtype, mode="r", shape=shape)

    @contextmanager
    def writing(
        self,
        key: str,
        shape: tuple[int, ...],
        description: dict[str, Any],
        on_waiting: Callable[[], None],
        dtype: DTypeLike = np.float16,
    ) -> Iterator["Writer"]:
        """Write an entry (V, N, ...) under a lock; a process that wants the same one waits, says so, and finds it."""
        busy = f"another process has been writing the feature cache {self.root / key} for a day; end it first"
        with writable(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            (self.root / f".{key}.lock").touch()
        with lock(self.root / f".{key}.lock", busy, SECONDS_FOR_ANOTHER_PROCESS, on_waiting):
            yield Writer(self.root / key, shape, description, np.dtype(dtype))

    def entries(self) -> list[CachedFeatures]:
        """List all entries, also unfinished ones, by name; other files in the folder are ignored."""
        found = sorted(self.root.iterdir()) if self.root.is_dir() else []
        entries = [_entry(path) for path in found if NAME.fullmatch(path.name) and path.is_dir()]
        return [entry for entry in entries if entry is not None]

    def remove(self, entry: CachedFeatures) -> None:
        busy = f"the feature cache {entry.folder} is being written; wait for it"
        try:
            with lock(self.root / f".{entry.key}.lock", busy):
                shutil.rmtree(entry.folder)
                (self.root / f".{entry.key}.lock").unlink(missing_ok=True)
        except FileNotFoundError:
            return  # another process removed or completed it
        except OSError as error:
            raise UserError(
                f"{entry.folder} cannot be removed ({error.strerror or error}): remove it with the rights of its owner"
            ) from None

    def _remedy(self, key: str) -> str:
        return f"remove it with `ccp cache {key[:8]} --clear --folder {quote(str(self.root))}`"


class Writer:
    """Fills an entry that is not complete yet, block by block of images."""

    def __init__(self, folder: Path, shape: tuple[int, ...], description: dict[str, Any], dtype: np.dtype[Any]) -> None:
        self.folder, self.part = folder, folder.with_name(folder.name + PART)
        self.dtype, self.file = dtype, self.part / FILES[dtype]
        self.shape, self.size = shape, math.prod(shape) * dtype.itemsize
        self.description = description

    @property
    def is_done(self) -> bool:
        """Tell whether another process completed the entry while this one waited for it."""
        return self.folder.is_dir()

    def begin(self) -> int:
        """Count the images of which all views are there already, and make room for all of them.

        A file of another size was not written by this code, and nothing of it is kept.
        """
        images, header = self.shape[1], _header(self.part)
        with writable(self.folder.parent):
            is_ours = header.get("format") == FORMAT  # another version may have written other numbers
            is_whole = is_ours and self.file.exists() and self.file.stat().st_size == self.size
            done = header.get(DONE)
            kept = done if is_whole and isinstance(done, int) and 0 <= done <= images else 0
            self.part.mkdir(exist_ok=True)
            for leftover in self.part.glob(f".{HEADER}.*"):  # of a kill within the header: it would stay for ever
                leftover.unlink(missing_ok=True)
            with self.file.open("ab") as handle:
                handle.truncate(self.size)
            self._note(kept)
        return kept

    def _note(self, done: int) -> None:
        write_json(self.part / HEADER, {"format": FORMAT, DONE: done, **self.description})

    def write(self, first: int, features: np.ndarray) -> None:
        """Write all views (V, B, ...) of the images from `first` on, and return when they are on the disk."""
        assert features.dtype == self.dtype
        if not np.isfinite(features).all():
            wider = ", or set model.feature_precision=single" if self.dtype == np.float16 else ""
            raise UserError(
                f"the backbone gives features that {self.dtype.name} cannot hold: check model.weights and "
                f"model.input_mean{wider}"
            )
        views, images = self.shape[:2]
        bytes_per_row = self.size // (views * images)
        with writable(self.folder.parent):
            with self.file.open("r+b") as handle:
                for view, rows in enumerate(features):
                    handle.seek((view * images + first) * bytes_per_row)
                    handle.write(rows.tobytes())
                handle.flush()
                os.fsync(handle.fileno())
            self._note(first + features.shape[1])

    def finish(self) -> None:
        """Declare the entry complete, which it must be."""
        with writable(self.folder.parent):
            written = self.file.stat().st_size
            if written != self.size:
                raise UserError(
                    f"the feature cache {self.part} holds {written} bytes instead of {self.size}: another "
                    "process wrote to it; run the command again"
                )
            header = {"format": FORMAT, "shape": list(self.shape), "digest": file_digest(self.file)}
            write_json(self.part / HEADER, {**header, **self.description})
            os.rename(self.part, self.folder)


@contextmanager
def writable(root: Path) -> Iterator[None]:
    """Turn errors of the disk into a sentence; put it only around what touches the disk."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"the feature cache {root} cannot be written ({error.strerror or error}): make room, or set run.cache "
            "to another folder; what was computed so far is kept"
        ) from None


def _header(folder: Path) -> dict[str, Any]:
    try:
        header = from_json((folder / HEADER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return header if isinstance(header, dict) else {}


def _entry(folder: Path) -> CachedFeatures | None:
    """Describe an entry; None if the folder is none, or if another process has just completed or removed it."""
    try:
        sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
    except FileNotFoundError:
        return None
    if not sizes.keys() & {*FILES.values(), HEADER}:
        return None
    size, complete = sum(sizes.values()), not folder.name.endswith(PART)
    return CachedFeatures(folder.name.removesuffix(PART), folder, size, complete, _header(folder))
