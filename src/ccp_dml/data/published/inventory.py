"""What a published data set says about its images, before any of them is opened."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ccp_dml.data.files.class_folders import images_below
from ccp_dml.data.files.images import ImageReading, readable
from ccp_dml.data.labelled import DataHalves, LabelledSet, TestSet
from ccp_dml.errors import UserError, listing


@dataclass(frozen=True)
class SplitSize:
    """How large one split is: "train", "test", or "query" and "gallery"."""

    classes: int
    images: int


@dataclass(frozen=True)
class ListedImage:
    """One image. `number` is its class in the official numbering, which is also the official order."""

    path: Path
    number: int
    split: str


@dataclass(frozen=True)
class Inventory:
    """All images of a data set, with the folder `base` that they were found in."""

    base: Path
    entries: tuple[ListedImage, ...]
    class_names: Mapping[int, str]
    published: Mapping[int, int] = field(default_factory=dict)  # images of each class, where no list names them
    counts_missing: str = ""  # where nothing tells how many images a class should have: what would

    @cached_property
    def missing(self) -> list[Path]:
        """List the files that the data set's own lists name and that are not there."""
        return [entry.path for entry in self.entries if not entry.path.is_file()]

    def sizes(self) -> dict[str, SplitSize]:
        """Count what is really there, split by split."""
        missing = set(self.missing)
        there = [entry for entry in self.entries if entry.path not in missing]
        images = Counter(entry.split for entry in there)
        classes = Counter(split for split, _ in {(entry.split, entry.number) for entry in there})
        return {split: SplitSize(classes[split], images[split]) for split in images}


def half_of(number: int, train_classes: int) -> str:
    """Tell which half a class is in where the first `train_classes` of the official numbers train."""
    return "train" if number <= train_classes else "test"


def list_folders(folders: Iterable[tuple[int, Path]], train_classes: int) -> tuple[ListedImage, ...]:
    """List the images of class folders (number of the class, folder), of which the first `train_classes` train."""
    return tuple(
        ListedImage(path, number, half_of(number, train_classes))
        for number, folder in folders
        for path in images_below(folder)
    )


def describe_short(inventory: Inventory) -> str:
    """Name the classes with missing images, and how many images of each are there; nothing where none is short."""
    missing = set(inventory.missing)
    listed = inventory.published or Counter(entry.number for entry in inventory.entries)
    there = Counter(entry.number for entry in inventory.entries if entry.path not in missing)
    names = [
        f"{inventory.class_names.get(number, f'class {number}')} ({there[number]} of {count})"
        for number, count in sorted(listed.items())
        if there[number] < count
    ]
    if inventory.counts_missing:
        return _describe_empty(inventory, there)
    if not names:
        return ""
    count = "1 class is short" if len(names) == 1 else f"{len(names):,} classes are short"
    return f"{count}: {listing(names, limit=20)}"


def _describe_empty(inventory: Inventory, there: Counter[int]) -> str:
    """Name the classes without any image, and say what would tell which others are short."""
    empty = [name for number, name in sorted(inventory.class_names.items()) if not there[number]]
    if not empty:
        return inventory.counts_missing
    count = "1 class has no image" if len(empty) == 1 else f"{len(empty):,} classes have no image"
    return f"{count}: {listing(empty, limit=20)}; {inventory.counts_missing}"


def describe_missing(missing: list[Path], total: int, base: Path) -> str:
    """Say how many images are missing, and name the first of them."""
    names = listing([str(path.relative_to(base)) for path in missing])
    return f"{len(missing):,} of {total:,} images are missing in {base}: {names}"


def divide_by_entries(inventory: Inventory, reading: ImageReading, notes: Iterable[str] = ()) -> DataHalves:
    """Divide into halves by the entries' splits; labels are renumbered 0, 1, ... in the official order of classes.

    Queries and gallery share one numbering. Classes of one image stay, as in the published numbers, unless
    `reading` leaves those of the train half out.
    """
    entries, notes = list(inventory.entries), list(notes)
    if reading.skip_broken:
        kept, left_out = readable([entry.path for entry in entries])
        entries, notes = [entries[index] for index in kept], [*notes, *left_out]
    elif inventory.missing:
        raise UserError(
            f"{describe_missing(inventory.missing, len(entries), inventory.base)}; restore them, or set "
            "`skip_broken`=true to go on without them"
        )
    if reading.drop_small_classes:
        sizes = Counter(entry.number for entry in entries if entry.split == "train")
        if single := sorted(number for number, size in sizes.items() if size == 1):
            names = listing([inventory.class_names[number] for number in single])
            notes.append(f"left out {len(single)} training classes with a single image: {names}")
            entries = [entry for entry in entries if entry.split != "train" or sizes[entry.number] > 1]
    source = reading.source([entry.path for entry in entries])

    def part(splits: tuple[str, ...], numbered_like: tuple[str, ...]) -> LabelledSet:
        """Select the images of `splits`; classes are counted through over those of `numbered_like`."""
        numbers = sorted({entry.number for entry in entries if entry.split in numbered_like})
        label = {number: index for index, number in enumerate(numbers)}
        rows = [(position, label[entry.number]) for position, entry in enumerate(entries) if entry.split in splits]
        if not rows:
            raise UserError(f"{inventory.base} holds no {splits[0]} images: `ccp data verify` says what is there")
        positions, labels = torch.tensor(rows, dtype=torch.int64).unbind(1)
        names = tuple(inventory.class_names[number] for number in numbers)
        return LabelledSet(source, positions.contiguous(), labels.contiguous(), names)

    train = part(("train",), ("train",))
    if any(entry.split == "gallery" for entry in entries):
        both = ("query", "gallery")
        test = TestSet(part(("query",), both), part(("gallery",), both))
    else:
        test = TestSet(part(("test",), ("test",)))
    return DataHalves(train, test, tuple(notes))


def read_rows(path: Path, *columns: Callable[[str], Any], header: int = 0) -> list[tuple[Any, ...]]:
    """Read the rows of a list, each cell parsed by its column's function; the first `header` lines are left out.

    The last column takes the rest of its line, blanks included.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}): restore it from the data set's archive") from None
    rows = []
    for number, line in enumerate(lines[header:], start=header + 1):
        if not line.strip():
            continue
        try:
            cells = line.strip().split(maxsplit=len(columns) - 1)
            rows.append(tuple(parse(cell) for parse, cell in zip(columns, cells, strict=True)))
        except ValueError:
            raise UserError(
                f"{path} has {line!r} in line {number}, not the {len(columns)} columns that belong there: "
                "restore it from the data set's archive"
            ) from None
    if not rows:
        raise UserError(f"{path} lists nothing: restore it from the data set's archive")
    return rows
