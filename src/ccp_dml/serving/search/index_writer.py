"""Fill an index and keep it up to date: add, remove, and embed again only what has changed."""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ccp_dml.errors import UserError, listing
from ccp_dml.foundation.digests import file_digest
from ccp_dml.serving.listed_images import ListedImage, absolute
from ccp_dml.serving.model import EmbeddingModel
from ccp_dml.serving.search import approximate
from ccp_dml.serving.search.gallery import is_gone, readable_path, refuse_other_model
from ccp_dml.serving.search.index_store import (
    Manifest,
    NextGeneration,
    PinnedModel,
    alone_writing,
    check_files,
    is_index,
    is_leftover,
    map_vectors,
    open_items,
    read_manifest,
    sweep,
)
from ccp_dml.serving.search.unfinished_build import UnfinishedBuild, forget_unfinished
from ccp_dml.serving.search.where import Value, as_sql, parse_where

Report = Callable[[int, int], None]
"""Called with how many images are embedded, and of how many."""
Known = Mapping[Path, tuple[tuple[int, int], np.ndarray]]
"""Vectors (D,) that need not be computed, by file, each with the size and time (bytes, mtime_ns) the file had then."""


def nobody(done: int, total: int) -> None:
    """Take a report and tell nobody."""


@dataclass
class Changes:
    """What a writer did, and what it could not do."""

    added: int = 0
    embedded_again: int = 0
    moved: int = 0
    relabelled: int = 0
    removed: int = 0
    unchanged: int = 0
    read: int = 0  # vectors that were given
    resumed: int = 0  # vectors that a build which did not end had computed
    missing: list[str] = field(default_factory=list)  # files that are not there
    broken: list[tuple[str, str]] = field(default_factory=list)  # files that are no readable images, and why
    exact_again: bool = False  # too few are left for approximate search

    @property
    def any(self) -> bool:
        return bool(self.added or self.embedded_again or self.moved or self.relabelled or self.removed)


@dataclass(frozen=True)
class _File:
    """What tells whether an image has changed."""

    bytes: int
    mtime_ns: int
    digest: str


@dataclass(frozen=True)
class _Stored:
    id: int
    image: ListedImage
    file: _File


@dataclass(frozen=True)
class _ToEmbed:
    image: ListedImage
    file: _File
    replaces: int | None = None  # the id under which it is indexed with its old content


@dataclass
class _Plan:
    """What to do about each image."""

    embed: list[_ToEmbed] = field(default_factory=list)
    drop: list[int] = field(default_factory=list)
    rename: list[tuple[int, str]] = field(default_factory=list)
    touch: list[tuple[int, _File]] = field(default_factory=list)  # the same content with a new time
    describe: list[tuple[int, ListedImage]] = field(default_factory=list)  # other label or attributes

    def describe_if_other(self, number: int, known: ListedImage, listed: ListedImage) -> None:
        """Plan to write down what a listing states, if it is not known."""
        image = known.amended(listed)
        if (image.label, image.attributes) != (known.label, known.attributes):
            self.describe.append((number, image))

    def changes_table(self) -> bool:
        return bool(self.embed or self.drop or self.rename or self.touch or self.describe)


def add_images(
    folder: Path,
    model: EmbeddingModel,
    model_path: Path,
    images: Sequence[ListedImage],
    approximation: approximate.Kind | None = None,
    report: Report = nobody,
    known: Known | None = None,
) -> Changes:
    """Add `images` to the index in `folder`, which is made if it is not there.

    Those it has already are embedded again only if their content has changed; one whose content is known from a file
    that is gone counts as moved. Unreadable and missing images are listed, not fatal. What has been embedded when the
    process is killed is not embedded again by the next call.
    """
    if folder.exists() and not is_index(folder) and not _holds_only_leftovers(folder):
        raise UserError(f"{folder} exists and is no index; choose another folder for --out.")
    with alone_writing(folder):
        previous = _checked_manifest(folder) if is_index(folder) else None
        pinned = PinnedModel(path=str(model_path.resolve()), name=model.name, digest=model.digest, dim=model.dim)
        if previous is not None:
            refuse_other_model(previous.model, model.digest, str(model_path), str(folder))
        changes = Changes()
        plan = _plan_addition(_stored_items(folder, previous), images, changes)
        _write(folder, previous, pinned, plan, model, approximation, changes, report, known)
        return changes


def refresh(folder: Path, model: EmbeddingModel, drop_missing: bool = False, report: Report = nobody) -> Changes:
    """Look at every indexed file again; embed what has changed, and list, or drop, what is gone."""
    with alone_writing(folder):
        previous = _checked_manifest(folder)
        refuse_other_model(previous.model, model.digest, model.name, str(folder))
        changes, plan = Changes(), _Plan()
        stored = _stored_items(folder, previous)
        for path, item in stored.items():
            now = _look_at(path, item, changes)
            if now is None:
                continue
            if now.digest != item.file.digest:
                plan.embed.append(_ToEmbed(item.image, now, replaces=item.id))
            else:
                changes.unchanged += 1
                plan.touch += [(item.id, now)] if now != item.file else []
        if drop_missing:
            plan.drop = [stored[path].id for path in changes.missing]
            changes.removed = len(plan.drop)
        _write(folder, previous, previous.model, plan, model, None, changes, report)
        return changes


def remove_images(folder: Path, paths: Iterable[str | Path] = (), where: str | None = None) -> Changes:
    """Remove the images with these paths, those below these folders, and those that satisfy the condition `where`."""
    with alone_writing(folder):
        previous = _checked_manifest(folder)
        stored = _stored_items(folder, previous)
        dropped: set[int] = set()
        for given in paths:
            whole = str(absolute(Path(given)))
            below = os.path.join(whole, "")
            if whole in stored:
                found = [stored[whole].id]
            else:
                found = [item.id for path, item in stored.items() if path.startswith(below)]
            if not found:
                raise UserError(f"{folder} has no image {given}, and none below it; nothing was removed.")
            dropped.update(found)
        if where is not None:
            with closing(open_items(folder, previous)) as table:
                names = [row[0] for row in table.execute("SELECT DISTINCT name FROM attributes")]
                sql, parameters = as_sql(parse_where(where, names))
                dropped.update(row[0] for row in table.execute(f"SELECT id FROM items WHERE {sql}", parameters))
        changes = Changes(removed=len(dropped), unchanged=len(stored) - len(dropped))
        if dropped:
            _write(folder, previous, previous.model, _Plan(drop=sorted(dropped)), None, None, changes)
        return changes


def _holds_only_leftovers(folder: Path) -> bool:
    """Tell whether a folder is empty but for what a killed writer began."""
    return folder.is_dir() and all(is_leftover(path.name) for path in folder.iterdir())


def _checked_manifest(folder: Path) -> Manifest:
    """Find the generation to start from, check it, and remove what a killed writer left."""
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    sweep(folder, manifest)
    return manifest


def _stored_items(folder: Path, manifest: Manifest | None) -> dict[str, _Stored]:
    """List the images of a generation by path, in the order of ids."""
    if manifest is None:
        return {}
    attributes: dict[int, dict[str, Value]] = {}
    with closing(open_items(folder, manifest)) as table:
        for number, name, value in table.execute("SELECT id, name, value FROM attributes"):
            attributes.setdefault(number, {})[name] = value
        rows = table.execute("SELECT path, id, label, bytes, mtime_ns, digest FROM items ORDER BY id")
        return {
            path: _Stored(number, ListedImage(Path(path), label, attributes.get(number, {})), _File(*file))
            for path, number, label, *file in rows
        }


def _look_at(path: str, known: _Stored | None, changes: Changes) -> _File | None:
    """Read a file's size, time and content, the last only if the others differ from what is known; or list why not."""
    try:
        status = os.stat(path)
        if known is not None and (status.st_size, status.st_mtime_ns) == (known.file.bytes, known.file.mtime_ns):
            return known.file
        return _File(status.st_size, status.st_mtime_ns, file_digest(Path(path)))
    except (FileNotFoundError, NotADirectoryError):
        changes.missing.append(path)
    except OSError as error:  # it is there, and may be readable another time
        changes.broken.append((path, error.strerror or str(error)))
    return None


def _plan_addition(stored: dict[str, _Stored], images: Sequence[ListedImage], changes: Changes) -> _Plan:
    plan = _Plan()
    by_digest: dict[str, list[str]] = {}
    for known_path, item in stored.items():
        by_digest.setdefault(item.file.digest, []).append(known_path)
    moved_from: set[str] = set()
    for image in images:
        path = readable_path(image.path)
        if path is None:
            changes.broken.append((ascii(str(image.path)), "its name is not text in UTF-8"))
            continue
        known = stored.get(path)
        now = _look_at(path, known, changes)
        if now is None:
            continue
        if known is not None and known.file.digest == now.digest:
            changes.unchanged += 1
            plan.describe_if_other(known.id, known.image, image)
            plan.touch += [(known.id, now)] if now != known.file else []
        elif known is not None:
            plan.embed.append(_ToEmbed(known.image.amended(image), now, replaces=known.id))
        elif (gone := _gone(by_digest.get(now.digest, []), moved_from)) is not None:
            moved_from.add(gone)
            number = stored[gone].id
            plan.rename.append((number, path))
            plan.touch.append((number, now))
            plan.describe_if_other(number, stored[gone].image, image)
            changes.moved += 1
        else:
            plan.embed.append(_ToEmbed(image, now))
    changes.relabelled = len(plan.describe)
    return plan


def _gone(paths: Sequence[str], taken: set[str]) -> str | None:
    return next((path for path in paths if path not in taken and is_gone(path)), None)


def _write(
    folder: Path,
    previous: Manifest | None,
    pinned: PinnedModel,
    plan: _Plan,
    model: EmbeddingModel | None,
    approximation: approximate.Kind | None,
    changes: Changes,
    report: Report = nobody,
    known: Known | None = None,
) -> None:
    """Write the next generation, if it differs: what is kept, then what is new, each with the next free id."""
    if model is None or not plan.embed:
        _write_generation(folder, previous, pinned, plan, iter(()), approximation, changes)
        forget_unfinished(folder)
        return
    build = UnfinishedBuild(folder, pinned.digest, pinned.dim)
    try:
        embedded = _embed(model, plan, known or {}, build, changes, report)
        _write_generation(folder, previous, pinned, plan, embedded, approximation, changes)
    except BaseException:
        if not len(build):
            build.remove()  # there is nothing to go on with
        raise
    build.remove()


def _write_generation(
    folder: Path,
    previous: Manifest | None,
    pinned: PinnedModel,
    plan: _Plan,
    embedded: Iterator[tuple[_ToEmbed, np.ndarray]],
    approximation: approximate.Kind | None,
    changes: Changes,
) -> None:
    if previous is not None and not plan.changes_table() and approximation in (None, _approximation_of(previous)):
        return
    generation = NextGeneration(folder, previous)
    try:
        _fill(generation, pinned, plan, embedded, approximation, changes)
    except BaseException:
        generation.abandon()
        raise


def _fill(
    generation: NextGeneration,
    pinned: PinnedModel,
    plan: _Plan,
    embedded: Iterator[tuple[_ToEmbed, np.ndarray]],
    asked: approximate.Kind | None,
    changes: Changes,
) -> None:
    previous = generation.previous
    next_id = 1 if previous is None else previous.next_id
    with closing(generation.new_table()) as table, generation.path("vectors").open("wb") as vectors:
        kept = _change_table(table, plan)
        if previous is not None:
            stored = map_vectors(generation.folder, previous)
            for start in range(0, len(kept), 1 << 14):
                vectors.write(stored[kept[start : start + (1 << 14)]].tobytes())
        count = len(kept)
        for new, vector in embedded:
            vectors.write(vector.tobytes())
            _insert(table, next_id, new)
            next_id, count = next_id + 1, count + 1
            changes.embedded_again += new.replaces is not None
            changes.added += new.replaces is None
        table.commit()
    if previous is None and count == 0:
        some = [f"{path} ({reason})" for path, reason in changes.broken] + [
            f"{path} (missing)" for path in changes.missing
        ]
        raise UserError(f"None of the images can be read: {listing(some)}.")
    had = None if previous is None else _approximation_of(previous)
    kind = approximate.kind_for(count, asked, had)
    changes.exact_again = kind is None and had is not None
    approximation = None
    if kind is not None:
        # Private, as torch complains about arrays that nobody may write to.
        mapped = np.memmap(generation.path("vectors"), np.float32, mode="c", shape=(count, pinned.dim))
        approximation = approximate.build(kind, mapped, generation.path("approximate"))
    generation.commit(pinned, count, next_id, approximation)


def _approximation_of(manifest: Manifest) -> approximate.Kind | None:
    return None if manifest.approximation is None else manifest.approximation.kind


def _change_table(table: sqlite3.Connection, plan: _Plan) -> np.ndarray:
    """Apply the plan to the copied table; return the rows of the old vectors that are kept."""
    ids = np.array([row[0] for row in table.execute("SELECT id FROM items ORDER BY id")], dtype=np.int64)
    table.executemany("DELETE FROM items WHERE id = ?", [(number,) for number in plan.drop])
    table.executemany("UPDATE items SET path = ? WHERE id = ?", [(path, number) for number, path in plan.rename])
    table.executemany(
        "UPDATE items SET bytes = ?, mtime_ns = ?, digest = ? WHERE id = ?",
        [(file.bytes, file.mtime_ns, file.digest, number) for number, file in plan.touch],
    )
    for number, image in plan.describe:
        table.execute("UPDATE items SET label = ? WHERE id = ?", (image.label, number))
        table.execute("DELETE FROM attributes WHERE id = ?", (number,))
        _insert_attributes(table, number, image)
    return np.flatnonzero(~np.isin(ids, plan.drop))


def _embed(
    model: EmbeddingModel,
    plan: _Plan,
    known: Known,
    build: UnfinishedBuild,
    changes: Changes,
    report: Report,
) -> Iterator[tuple[_ToEmbed, np.ndarray]]:
    """Embed what is planned, plan to drop what it replaces, and give images with their vectors (D,), in order.

    What cannot be read is left out of the plan and listed. If it is indexed with its old content, that stays, and with
    it the digest, so that the next writer tries again.
    """
    given = {new.image.path: vector for new in plan.embed if (vector := _given(new, known)) is not None}
    others = [new for new in plan.embed if new.image.path not in given]
    resumed = sum(new.file.digest in build for new in others)
    changes.read, changes.resumed = len(given), resumed
    fresh = {new.file.digest: new.image.path for new in others if new.file.digest not in build}
    reasons = _embed_into(build, model, fresh, report, len(given) + resumed)
    readable = []
    for new in plan.embed:
        if new.image.path in given or new.file.digest in build:
            readable.append(new)
            plan.drop += [] if new.replaces is None else [new.replaces]
        else:
            changes.broken.append((str(new.image.path), reasons[new.file.digest]))

    def vector_of(new: _ToEmbed) -> np.ndarray:
        vector = given.get(new.image.path)
        return build.vector(new.file.digest) if vector is None else model.comparable(vector[None])[0]

    plan.embed = readable
    return ((new, vector_of(new)) for new in readable)


def _given(new: _ToEmbed, known: Known) -> np.ndarray | None:
    """Find the vector that was computed of the file as it is now."""
    state, vector = known.get(new.image.path, (None, None))
    return vector if state == (new.file.bytes, new.file.mtime_ns) else None


def _embed_into(
    build: UnfinishedBuild,
    model: EmbeddingModel,
    fresh: dict[str, Path],
    report: Report,
    already: int,
) -> dict[str, str]:
    """Embed files by content, each once; return why a content cannot be read. `already` are known without it."""
    contents, paths = list(fresh), list(fresh.values())
    total = already + len(fresh)
    report(already, total)
    for positions, vectors in model.embed_stream(paths, on_error="skip"):
        if not np.isfinite(vectors).all():
            raise UserError(f"{model.name} gives NaN or infinite values for some images; it cannot be searched with.")
        if positions:
            build.append([contents[position] for position in positions], model.comparable(vectors))
            report(already + positions[-1] + 1, total)
    content_of = {path: content for content, path in fresh.items()}
    return {content_of[path]: reason for path, reason in model.skipped}


def _insert(table: sqlite3.Connection, number: int, new: _ToEmbed) -> None:
    file = new.file
    table.execute(
        "INSERT INTO items VALUES (?, ?, ?, ?, ?, ?)",
        (number, str(new.image.path), new.image.label, file.bytes, file.mtime_ns, file.digest),
    )
    _insert_attributes(table, number, new.image)


def _insert_attributes(table: sqlite3.Connection, number: int, image: ListedImage) -> None:
    rows = [(number, name, value) for name, value in image.attributes.items()]
    table.executemany("INSERT INTO attributes VALUES (?, ?, ?)", rows)
