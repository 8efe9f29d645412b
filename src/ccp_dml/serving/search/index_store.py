"""An index on disk: files of numbered generations, and one small manifest that says which of them count.

    birds.index/
      manifest.json           which generation counts, of which model, how large and of which content its files are
      vectors-000003.f32      float32 (N, D), rows in the order of the images' ids
      items-000003.sqlite     images: id, path, label, size, time, digest; and their attributes
      approximate-000003.faiss   only with --approximate

A writer makes all files of the next generation, then replaces the manifest in one step, then removes the files of the
last one. Killed at any moment it leaves the old index or the new one; what it began is swept by the next writer.
"""

import os
import re
import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path
from shlex import quote
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ccp_dml.errors import UserError
from ccp_dml.foundation.digests import file_digest
from ccp_dml.foundation.files import write_json
from ccp_dml.foundation.locks import alone_in

MANIFEST = "manifest.json"
SUFFIXES = {"vectors": ".f32", "items": ".sqlite", "approximate": ".faiss"}
GENERATION_FILE = re.compile(r"^(vectors|items|approximate)-\d{6}\.(f32|sqlite|faiss)(-journal)?$")

TABLES = """
CREATE TABLE items (
    id INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,
    label TEXT,
    bytes INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    digest TEXT NOT NULL
);
CREATE TABLE attributes (
    id INTEGER NOT NULL REFERENCES items ON DELETE CASCADE,
    name TEXT NOT NULL,
    value,
    PRIMARY KEY (id, name)
) WITHOUT ROWID;
CREATE INDEX items_by_label ON items (label);
CREATE INDEX items_by_digest ON items (digest);
CREATE INDEX attributes_by_value ON attributes (name, value);
"""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class PinnedModel(Strict):
    """The network whose embeddings are stored: its digest is what counts, its path is where it was."""

    path: str
    name: str
    digest: str
    dim: int = Field(gt=0)


class StoredFile(Strict):
    name: str = Field(pattern=r"^[a-z]+-\d{6}\.[a-z0-9]+$")
    bytes: int = Field(ge=0)
    digest: str


class Approximation(Strict):
    """How the approximate index was built, and how many of the true neighbours it found on a sample."""

    kind: Literal["hnsw", "ivf"]
    recall_at_10: float
    sample: int


class Manifest(Strict):
    format: Literal[1] = 1
    generation: int = Field(ge=1)
    model: PinnedModel
    count: int = Field(ge=0)
    next_id: int = Field(ge=1)  # ids are never given twice
    files: dict[Literal["vectors", "items", "approximate"], StoredFile]
    approximation: Approximation | None = None


def is_index(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def read_manifest(folder: Path) -> Manifest:
    """Read which files count, and refuse what is no index."""
    if not folder.is_dir():
        raise UserError(
            f"There is no index {folder}; make it with `ccp index MODEL IMAGES... --out {quote(str(folder))}`."
        )
    try:
        return Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise UserError(f"{folder} is no index: it has no {MANIFEST}; give a folder that `ccp index` wrote.") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole file"
        raise damaged(folder, f"{MANIFEST}, {where}: {first['msg']}") from None
    except OSError as error:
        raise damaged(folder, f"{MANIFEST}: {error.strerror}") from None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Say which files count, in one step."""
    write_json(folder / MANIFEST, manifest.model_dump())
    _to_disk(folder)


def check_files(folder: Path, manifest: Manifest) -> None:
    """Compare the files with the manifest: their sizes, and the content of all that a search reads as a whole."""
    for role in ("vectors", "items"):
        if role not in manifest.files:
            raise damaged(folder, f"{MANIFEST} names no {role}")
    for role, stored in manifest.files.items():
        path = folder / stored.name
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise damaged(folder, f"{stored.name} is missing") from None
        if size != stored.bytes:
            raise damaged(folder, f"{stored.name} has {size:,} bytes instead of {stored.bytes:,}")
        read_in_parts = role == "vectors" and manifest.approximation is not None
        if not read_in_parts and file_digest(path) != stored.digest:
            raise damaged(folder, f"{stored.name} has another content than was written")
    if manifest.files["vectors"].bytes != 4 * manifest.count * manifest.model.dim:
        raise damaged(folder, f"the vectors are not {manifest.count:,} of {manifest.model.dim} numbers")


def map_vectors(folder: Path, manifest: Manifest) -> np.ndarray:
    """Map the stored vectors (N, D), read from disk as they are needed; private, so that nobody can change the file."""
    shape = (manifest.count, manifest.model.dim)
    if manifest.count == 0:  # an empty file cannot be mapped
        return np.empty(shape, np.float32)
    return np.memmap(folder / manifest.files["vectors"].name, np.float32, mode="c", shape=shape)


def open_items(folder: Path, manifest: Manifest) -> sqlite3.Connection:
    """Open the table of images for reading; usable from any thread, one at a time."""
    path = (folder / manifest.files["items"].name).resolve()
    uri = f"{path.as_uri()}?mode=ro&immutable=1"
    try:
        return sqlite3.connect(uri, uri=True, check_same_thread=False)
    except sqlite3.Error as error:
        raise damaged(folder, f"{path.name}: {error}") from None


def alone_writing(folder: Path) -> AbstractContextManager[None]:
    """Let no other process write this index."""
    return alone_in(folder, doing="written")


class NextGeneration:
    """The files of the generation that is being written; nothing counts before `commit`."""

    def __init__(self, folder: Path, previous: Manifest | None) -> None:
        self.folder = folder
        self.previous = previous
        self.number = 1 if previous is None else previous.generation + 1
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder, previous)

    def path(self, role: str) -> Path:
        return self.folder / f"{role}-{self.number:06d}{SUFFIXES[role]}"

    def new_table(self) -> sqlite3.Connection:
        """Make a table of images that starts as a copy of the previous one, or empty."""
        connection = sqlite3.connect(self.path("items"))
        if self.previous is None:
            connection.executescript(TABLES)
        else:
            old = open_items(self.folder, self.previous)
            old.backup(connection)
            old.close()
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def __enter__(self) -> "NextGeneration":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Leave things as they were if anything went wrong."""
        if kind is None:
            return
        sweep(self.folder, self.previous)
        if self.previous is None and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def commit(
        self, model: PinnedModel, count: int, next_id: int, approximation: Approximation | None = None
    ) -> Manifest:
        """Make this generation count, in one step, and remove the files of the last."""
        roles: list[Literal["vectors", "items", "approximate"]] = ["vectors", "items"]
        if approximation is not None:
            roles.append("approximate")
        files = {}
        for role in roles:
            path = self.path(role)
            _to_disk(path)
            files[role] = StoredFile(name=path.name, bytes=path.stat().st_size, digest=file_digest(path))
        manifest = Manifest(
            generation=self.number,
            model=model,
            count=count,
            next_id=next_id,
            files=files,
            approximation=approximation,
        )
        _to_disk(self.folder)
        write_manifest(self.folder, manifest)
        sweep(self.folder, manifest)
        return manifest


def is_leftover(name: str) -> bool:
    """Tell whether a file is one that writers make and remove: generations, journals of SQLite, scratch files."""
    return bool(GENERATION_FILE.match(name)) or name.startswith(f".{MANIFEST}.")


def sweep(folder: Path, counting: Manifest | None) -> None:
    """Remove what a killed writer or an earlier generation left."""
    kept = set() if counting is None else {stored.name for stored in counting.files.values()}
    for path in folder.iterdir():
        if is_leftover(path.name) and path.name not in kept:
            path.unlink(missing_ok=True)


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def damaged(folder: Path, what: str) -> UserError:
    return UserError(f"The index {folder} is damaged ({what}); remove it, and make it again with `ccp index`.")
