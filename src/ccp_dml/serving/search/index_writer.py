"""Fill an index and keep it up to date: add, remove, and embed again only what has changed."""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from ccp_dml.errors import UserError, listing
from ccp_dml.serving.listed_images import ListedImage, absolute
from ccp_dml.serving.model import EmbeddingModel
from ccp_dml.serving.search import approximate
from ccp_dml.serving.search.gallery import refuse_other_model
from ccp_dml.serving.search.index_plan import Changes, Plan, Stored, ToEmbed, plan_addition, stored_items
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
    write_manifest,
)
from ccp_dml.serving.search.unfinished_build import UnfinishedBuild
from ccp_dml.serving.search.where import as_sql, parse_where

Report = Callable[[int, int], None]
"""Called with how many images are embedded, and of how many."""
Known = Mapping[Path, tuple[tuple[int, int], np.ndarray]]
"""Vectors (D,) that need not be computed, by file, each with the size and time (bytes, mtime_ns) the file had then."""


def add_images(
    folder: Path,
    model: EmbeddingModel,
    model_path: Path,
    images: Sequence[ListedImage],
    approximation: approximate.Kind | None = None,
    report: Report = lambda *_: None,
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
        if previous is not None:
            refuse_other_model(previous.model, model.digest, str(model_path), str(folder))
        changes = Changes()
        plan = plan_addition(stored_items(folder, previous), images, changes)
        _embed_and_write(folder, previous, model, model_path, plan, changes, report, approximation, known)
        return changes


def refresh(
    folder: Path,
    model: EmbeddingModel,
    drop_missing: bool = False,
    report: Report = lambda *_: None,
    model_path: Path | None = None,
) -> Changes:
    """Look at every indexed file again; embed what has changed, and list, or drop, what is gone.

    With `model_path`, the index notes that its model is there now.
    """
    with alone_writing(folder):
        previous = _checked_manifest(folder)
        refuse_other_model(previous.model, model.digest, model.name, str(folder))
        changes = Changes()
        stored = stored_items(folder, previous)
        plan = plan_addition(stored, [item.image for item in stored.values()], changes)
        if drop_missing:
            plan.drop = [stored[path].id for path in changes.missing]
            changes.removed = len(plan.drop)
        path = Path(previous.model.path) if model_path is None else model_path
        _embed_and_write(folder, previous, model, path, plan, changes, report)
        return changes


def remove_images(folder: Path, paths: Iterable[str | Path] = (), where: str | None = None) -> Changes:
    """Remove the images with these paths, those below these folders, and those that satisfy the condition `where`."""
    with alone_writing(folder):
        previous = _checked_manifest(folder)
        stored = stored_items(folder, previous)
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
        _write(folder, previous, previous.model, Plan(drop=sorted(dropped)), changes)
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


def _embed_and_write(
    folder: Path,
    previous: Manifest | None,
    model: EmbeddingModel,
    model_path: Path,
    plan: Plan,
    changes: Changes,
    report: Report,
    asked: approximate.Kind | None = None,
    known: Known | None = None,
) -> None:
    """Embed what is planned and write the next generation; what is embedded is kept until that counts."""
    pinned = PinnedModel(
        path=str(model_path.expanduser().resolve()), name=model.name, digest=model.digest, dim=model.dim
    )
    if plan.embed:  # what cannot be approximated is refused before the work
        at_most = (0 if previous is None else previous.count) + sum(new.replaces is None for new in plan.embed)
        approximate.kind_for(at_most, asked, _approximation_of(previous))
    build = UnfinishedBuild(folder, model.digest, model.dim)
    try:
        embedded = _embed(model, plan, known or {}, build, changes, report) if plan.embed else ()
        _write(folder, previous, pinned, plan, changes, embedded, asked)
    except BaseException:
        if not len(build):
            build.remove()  # there is nothing to go on with
        raise
    build.remove()


def _write(
    folder: Path,
    previous: Manifest | None,
    pinned: PinnedModel,
    plan: Plan,
    changes: Changes,
    embedded: Iterable[tuple[ToEmbed, np.ndarray]] = (),
    asked: approximate.Kind | None = None,
) -> None:
    """Write the next generation, if it differs: what is kept, then what is new, each with the next free id."""
    had = _approximation_of(previous)
    if previous is not None and not plan.changes_anything() and asked in (None, had):
        if previous.model != pinned:
            write_manifest(folder, previous.model_copy(update={"model": pinned}))
        return
    with NextGeneration(folder, previous) as generation:
        next_id = 1 if previous is None else previous.next_id
        with closing(generation.new_table()) as table, generation.path("vectors").open("wb") as vectors:
            kept = _change_table(table, plan)
            if previous is not None:
                stored = map_vectors(folder, previous)
                for start in range(0, len(kept), 1 << 14):
                    vectors.write(stored[kept[start : start + (1 << 14)]].tobytes())
            count = len(kept)
            for new, vector in embedded:
                vectors.write(vector.tobytes())
                _insert(table, Stored(next_id, new.image, new.file))
                next_id, count = next_id + 1, count + 1
                changes.embedded_again += new.replaces is not None
                changes.added += new.replaces is None
            table.commit()
        if previous is None and count == 0:
            some = [f"{path} ({reason})" for path, reason in changes.broken]
            some += [f"{path} (missing)" for path in changes.missing]
            raise UserError(f"None of the images can be read: {listing(some)}.")
        kind = approximate.kind_for(count, asked, had)
        changes.exact_again = kind is None and had is not None
        approximation = None
        if kind is not None:
            # Private, as torch complains about arrays that nobody may write to.
            mapped = np.memmap(generation.path("vectors"), np.float32, mode="c", shape=(count, pinned.dim))
            approximation = approximate.build(kind, mapped, generation.path("approximate"))
        generation.commit(pinned, count, next_id, approximation)


def _approximation_of(manifest: Manifest | None) -> approximate.Kind | None:
    return None if manifest is None or manifest.approximation is None else manifest.approximation.kind


def _change_table(table: sqlite3.Connection, plan: Plan) -> np.ndarray:
    """Apply the plan to the copied table; return the rows of the old vectors that are kept."""
    ids = np.array([row[0] for row in table.execute("SELECT id FROM items ORDER BY id")], dtype=np.int64)
    outdated = plan.drop + [item.id for item in plan.amend]
    table.executemany("DELETE FROM items WHERE id = ?", [(number,) for number in outdated])
    for item in plan.amend:
        _insert(table, item)
    return np.flatnonzero(~np.isin(ids, plan.drop))


def _insert(table: sqlite3.Connection, item: Stored) -> None:
    image, file = item.image, item.file
    table.execute(
        "INSERT INTO items VALUES (?, ?, ?, ?, ?, ?)",
        (item.id, str(image.path), image.label, file.bytes, file.mtime_ns, file.digest),
    )
    attributes = [(item.id, name, value) for name, value in image.attributes.items()]
    table.executemany("INSERT INTO attributes VALUES (?, ?, ?)", attributes)


def _embed(
    model: EmbeddingModel,
    plan: Plan,
    known: Known,
    build: UnfinishedBuild,
    changes: Changes,
    report: Report,
) -> Iterator[tuple[ToEmbed, np.ndarray]]:
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

    def vector_of(new: ToEmbed) -> np.ndarray:
        vector = given.get(new.image.path)
        return build.vector(new.file.digest) if vector is None else model.comparable(vector[None])[0]

    plan.embed = readable
    return ((new, vector_of(new)) for new in readable)


def _given(new: ToEmbed, known: Known) -> np.ndarray | None:
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
