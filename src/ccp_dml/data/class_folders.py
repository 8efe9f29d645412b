"""One folder per class, as people keep a data set whose own lists are gone."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ccp_dml.data.images import SUFFIXES

LEAST_CLASSES = 2
"""A folder counts as a collection of classes from here on; a single name could be a coincidence."""


def places(root: Path) -> Iterator[Path]:
    """Where a data set may stand when someone names `root`: there, or one folder below."""
    yield root
    yield from subfolders(root)


def subfolders(folder: Path) -> list[Path]:
    """Folders in `folder`, sorted, without hidden ones and without caches that belong to the data set's images."""
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
    """(official number, folder) of the subfolders whose names are those of classes, in the official order.

    `within` are the subfolders to look in: with ("train", "test"), a class may have two folders.
    """
    found = [
        (number, entry)
        for part in within
        for entry in subfolders(folder / part)
        if (number := class_number(entry.name)) is not None
    ]
    return sorted(found) if len({number for number, _ in found}) >= LEAST_CLASSES else []


def images_below(folder: Path) -> list[Path]:
    """All image files below `folder`, hidden ones aside, in the order of their paths."""
    found = []
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            Path(parent, name) for name in files if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES
        ]
    return sorted(found)


def leading_number(name: str, largest: int) -> int | None:
    """1..largest from `001.Black_footed_Albatross`, `17` or `017 Some car`; None from anything else."""
    digits = name[: len(name) - len(name.lstrip("0123456789"))]
    following = name[len(digits) : len(digits) + 1]
    if not digits or following not in ("", ".", " ", "_", "-"):
        return None
    number = int(digits)
    return number if 1 <= number <= largest else None
