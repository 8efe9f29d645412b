"""One folder per class, as people keep a data set whose own lists are gone."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ccp_dml.data.files.images import SUFFIXES, UNREAD_SUFFIXES
from ccp_dml.errors import UserError, listing
from ccp_dml.foundation.files import is_of_the_system

LEAST_CLASSES = 2
"""A folder counts as a collection of classes from here on; a single name could be a coincidence."""


def places(root: Path) -> Iterator[Path]:
    """List where a data set may stand when someone names `root`: there, or one folder below."""
    yield root
    yield from subfolders(root)


def subfolders(folder: Path) -> list[Path]:
    """List the folders in `folder`, sorted, without hidden ones and image caches."""
    if not folder.is_dir():
        return []
    return sorted(
        entry
        for entry in folder.iterdir()
        if entry.is_dir() and not entry.name.startswith(".") and not entry.name.startswith("cached-")
    )


def class_folders(
    folder: Path, class_number: Callable[[str], int | None], within: tuple[str, ...] = ("",)
) -> list[tuple[int, Path]]:
    """Find the subfolders that are named like classes, in the official order: (official number, folder).

    `within` are the subfolders to look in: with ("train", "test"), a class may have two folders.
    """
    found = [
        (number, entry)
        for part in within
        for entry in subfolders(folder / part)
        if (number := class_number(entry.name)) is not None
    ]
    return sorted(found) if len({number for number, _ in found}) >= LEAST_CLASSES else []


def find_class_folders(
    root: Path, class_number: Callable[[str], int | None], within: tuple[str, ...] = ("",)
) -> tuple[Path, list[tuple[int, Path]]] | None:
    """Find the first of `places` with class folders: in one of the folders `within` it, or in its train/ and test/.

    Returns the folder that they are in, and what `class_folders` says; None if there are none.
    """
    for place in places(root):
        for base, parts in (*((place / folder, ("",)) for folder in within), (place, ("train", "test"))):
            if found := class_folders(base, class_number, parts):
                return base, found
    return None


class ImageWalk:
    """Finds the image files of a data set folder by folder, each real file once.

    Links to files are followed. A linked folder is followed where it leads out of the data set, as to another disk; one
    that leads back into it would give images of another class, or close a circle, and is left out.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.links_left_out: list[Path] = []
        self.lost: list[Path] = []  # links that lead nowhere
        self.files_left_out: list[Path] = []  # other names of files that were found before
        self.unread: Counter[str] = Counter()  # pictures in formats that are not read, by suffix
        self._found: set[tuple[int, int]] = set()

    def images_below(self, folder: Path) -> list[Path]:
        """List the image files below `folder`, hidden ones aside, in the order of their paths."""
        images = []
        try:
            candidates = sorted(self._candidates(folder))
        except OSError as error:
            raise UserError(
                f"{error.filename} cannot be read ({error.strerror}): see to its rights, or remove it"
            ) from None
        for path in candidates:
            if (identity := _identity(path)) in self._found:
                self.files_left_out.append(path)
            else:
                self._found.add(identity)
                images.append(path)
        return images

    def notes(self) -> list[str]:
        """Say what was left out, and why."""
        notes = []
        if self.links_left_out:
            shown = listing([str(link) for link in self.links_left_out])
            notes.append(
                f"left out {len(self.links_left_out)} linked folders that lead back into the data set, or into the "
                f"operating system: {shown}"
            )
        if self.files_left_out:
            shown = listing([str(path) for path in self.files_left_out])
            notes.append(f"left out {len(self.files_left_out)} further names of files that count already: {shown}")
        if self.lost:
            shown = listing([str(link) for link in self.lost])
            notes.append(f"left out {len(self.lost)} links that lead nowhere: {shown}")
        if self.unread:
            notes.append(f"left out {unread_text(self.unread)}")
        return notes

    def _candidates(self, folder: Path) -> Iterator[Path]:
        entered, waiting = {_identity(folder)}, [folder]  # a list, because folders may be nested deeper than Python
        while waiting:
            parent = waiting.pop(0)
            for entry in sorted(os.scandir(parent), key=lambda entry: entry.name):
                path = Path(parent, entry.name)
                if entry.name.startswith("."):
                    continue
                if entry.is_symlink() and not path.exists():
                    self.lost.append(path)
                elif entry.is_dir():
                    if (entry.is_symlink() and self._leads_back(path)) or (identity := _identity(path)) in entered:
                        self.links_left_out.append(path)
                    else:
                        entered.add(identity)
                        waiting.append(path)
                elif path.suffix.lower() in SUFFIXES and entry.is_file():  # not a pipe or a device, which would block
                    yield path
                elif path.suffix.lower() in UNREAD_SUFFIXES and entry.is_file():
                    self.unread[path.suffix.lower()] += 1

    def _leads_back(self, link: Path) -> bool:
        target = link.resolve()
        return target.is_relative_to(self.root) or self.root.is_relative_to(target) or is_of_the_system(target)


def _identity(path: Path) -> tuple[int, int]:
    """Identify a file or folder whatever name leads to it."""
    status = path.stat()
    return status.st_dev, status.st_ino


def images_below(folder: Path) -> list[Path]:
    """List all image files below `folder`, each real file once, hidden ones aside, in the order of their paths."""
    return ImageWalk(folder).images_below(folder)


def unread_below(given: Iterable[str | Path]) -> Counter[str]:
    """Count the pictures below folders that are of formats which are not read, by suffix; other paths have none."""
    unread: Counter[str] = Counter()
    for folder in (Path(one).expanduser() for one in given):
        if folder.is_dir():
            walk = ImageWalk(folder)
            walk.images_below(folder)
            unread += walk.unread
    return unread


def unread_text(unread: Counter[str]) -> str:
    """Say how many files of which formats are not read, and what helps."""
    kinds = listing([f"{suffix} {count:,}" for suffix, count in sorted(unread.items(), key=lambda one: (-one[1], one))])
    return f"{unread.total():,} files of formats that are not read ({kinds}): convert them to JPEG"


def leading_number(name: str, largest: int) -> int | None:
    """Read 1..largest from `001.Black_footed_Albatross`, `17` or `017 Some car`; None from anything else."""
    digits = name[: len(name) - len(name.lstrip("0123456789"))]
    following = name[len(digits) : len(digits) + 1]
    if not digits or following not in ("", ".", " ", "_", "-"):
        return None
    number = int(digits)
    return number if 1 <= number <= largest else None
