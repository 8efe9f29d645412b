"""What to do about each image of an index: decided by a look at its file, before anything is embedded or written."""

import os
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from ccp_dml.errors import is_text
from ccp_dml.foundation.digests import file_digest
from ccp_dml.serving.listed_images import ListedImage
from ccp_dml.serving.search.gallery import is_gone
from ccp_dml.serving.search.index_store import Manifest, open_items
from ccp_dml.serving.search.where import Value


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


@dataclass(frozen=True)
class FileState:
    """What tells whether an image has changed."""

    bytes: int
    mtime_ns: int
    digest: str


@dataclass(frozen=True)
class Stored:
    """An image as the index has it."""

    id: int
    image: ListedImage
    file: FileState


@dataclass(frozen=True)
class ToEmbed:
    """An image whose content the index does not have."""

    image: ListedImage
    file: FileState
    replaces: int | None = None  # the id under which it is indexed with its old content


@dataclass
class Plan:
    """What to embed, which ids to drop, and what to write down anew about images that keep their vectors."""

    embed: list[ToEmbed] = field(default_factory=list)
    drop: list[int] = field(default_factory=list)
    amend: list[Stored] = field(default_factory=list)

    def changes_anything(self) -> bool:
        return bool(self.embed or self.drop or self.amend)


def stored_items(folder: Path, manifest: Manifest | None) -> dict[str, Stored]:
    """List the images of a generation by path, in the order of ids."""
    if manifest is None:
        return {}
    attributes: dict[int, dict[str, Value]] = {}
    with closing(open_items(folder, manifest)) as table:
        for number, name, value in table.execute("SELECT id, name, value FROM attributes"):
            attributes.setdefault(number, {})[name] = value
        rows = table.execute("SELECT path, id, label, bytes, mtime_ns, digest FROM items ORDER BY id")
        return {
            path: Stored(number, ListedImage(Path(path), label, attributes.get(number, {})), FileState(*file))
            for path, number, label, *file in rows
        }


def plan_addition(stored: dict[str, Stored], images: Iterable[ListedImage], changes: Changes) -> Plan:
    """Decide about each of `images`: new, changed, moved here from a file that is gone, or known as it is."""
    plan = Plan()
    by_content: dict[str, list[Stored]] = {}
    for item in stored.values():
        by_content.setdefault(item.file.digest, []).append(item)
    for image in images:
        path = str(image.path)
        if not is_text(path):
            changes.broken.append((ascii(path), "its name is not text in UTF-8"))
            continue
        known = stored.get(path)
        now = _look_at(path, known, changes)
        if now is None:
            continue
        if known is None:
            known = _take_gone(by_content.get(now.digest, []))
        if known is None or known.file.digest != now.digest:
            whole = image if known is None else known.image.amended(image)
            plan.embed.append(ToEmbed(whole, now, replaces=None if known is None else known.id))
            continue
        amended = Stored(known.id, known.image.amended(image), now)
        if amended != known:
            plan.amend.append(amended)
        old, new = known.image, amended.image
        changes.moved += new.path != old.path
        changes.relabelled += (new.label, new.attributes) != (old.label, old.attributes)
        changes.unchanged += new == old
    return plan


def _look_at(path: str, known: Stored | None, changes: Changes) -> FileState | None:
    """Read a file's size, time and content, the last only if the others differ from what is known; or list why not."""
    try:
        status = os.stat(path)
        if known is not None and (status.st_size, status.st_mtime_ns) == (known.file.bytes, known.file.mtime_ns):
            return known.file
        return FileState(status.st_size, status.st_mtime_ns, file_digest(Path(path)))
    except (FileNotFoundError, NotADirectoryError):
        changes.missing.append(path)
    except OSError as error:  # it is there, and may be readable another time
        changes.broken.append((path, error.strerror or str(error)))
    return None


def _take_gone(of_one_content: list[Stored]) -> Stored | None:
    """Take an image whose file is gone out of the list; none can have moved to two places."""
    for place, item in enumerate(of_one_content):
        if is_gone(item.image.path):
            return of_one_content.pop(place)
    return None
