"""A folder of images: one subfolder per class."""

from pathlib import Path

from ccp_dml.data.files.class_folders import ImageWalk, unread_text
from ccp_dml.data.files.images import SUFFIXES, ImageReading, readable
from ccp_dml.data.labelled import DataHalves
from ccp_dml.data.splits import SPLITS, divide
from ccp_dml.errors import UserError, listing
from ccp_dml.foundation.files import is_of_the_system

PARTS = frozenset({"train", "training", "val", "valid", "validation", "dev", "test", "testing"})
"""What people call the parts of a data set, in any case of letters."""


def load_folder(root: str | Path, reading: ImageReading, test_share: float = 0.5) -> DataHalves:
    """Read `root/CLASS/**/IMAGE`, or `root/train/CLASS/**/IMAGE` and `root/test/CLASS/**/IMAGE`.

    Without `train` and `test`, the first half of the sorted classes trains (the larger half if their number is odd), or
    all but the last `test_share` of them: sorted by name, or by number if all names are integers. Hidden files and
    folders are ignored, and one real file counts once, whatever links lead to it.
    """
    if not str(root):
        raise UserError("no folder is named: set `root` to the folder that holds one subfolder per class")
    root = Path(root).expanduser()
    if is_of_the_system(root):
        raise UserError(f"{root} belongs to the operating system: set `root` to a folder of images")
    if root.is_file():
        raise UserError(
            f"{root} is a file, not a folder: set `root` to the folder that holds one subfolder per class; a table is "
            "read by `csv` in place of `folder`"
        )
    if not root.is_dir():
        raise UserError(f"there is no folder {root}: set `root` to the folder that holds one subfolder per class")
    given = _has_splits(root)
    paths: list[Path] = []
    labels: list[str] = []
    splits: list[str] = []
    notes: list[str] = []
    walk = ImageWalk(root)
    loose: list[str] = []
    for split in SPLITS if given else ("",):
        empty = []
        for entry in sorted(path for path in (root / split).iterdir() if not path.name.startswith(".")):
            if entry.is_symlink() and not entry.exists():
                walk.lost.append(entry)
            elif entry.suffix.lower() in SUFFIXES and entry.is_file():
                loose.append(str(entry))
        for folder in _subfolders(root / split):
            images = walk.images_below(folder)
            paths += images
            labels += [folder.name] * len(images)
            splits += [split] * len(images)
            if not images:
                empty.append(str(folder.relative_to(root)))
        if empty:
            notes.append(f"left out {len(empty)} class folders without images of their own: {listing(empty)}")
        notes += _notes_on_links(_subfolders(root / split))
    notes += walk.notes()
    if not paths:
        raise UserError(
            f"{root} has no subfolders with images ({', '.join(sorted(SUFFIXES))}): set `root` to the folder that "
            "holds one subfolder per class"
            + (f"; there are {unread_text(walk.unread)}" if walk.unread else "")
            + (f"; {len(loose):,} images lie in it directly: sort them into such subfolders" if loose else "")
        )
    if loose:
        notes.append(f"left out {len(loose):,} images that lie in no class folder: {listing(loose)}")
    if len(set(labels)) == 1:
        classes = _subfolders(root / labels[0]) if (root / labels[0]).is_dir() else []  # not below train or test
        remedy = (
            f"set `root`={root / labels[0]}, which holds {len(classes):,} subfolders, if these are the classes"
            if len(classes) > 1
            else "set `root` to the folder that holds one subfolder per class, or add classes"
        )
        raise UserError(f"{root} has images of only one class, in the subfolder {labels[0]}: {remedy}")
    if given and (others := [folder.name for folder in _subfolders(root) if folder.name not in SPLITS]):
        notes.append(f"left out what is beside train and test: {listing(others)}")
    if reading.skip_broken:
        kept, left_out = readable(paths)
        notes += left_out
        paths, labels, splits = [paths[i] for i in kept], [labels[i] for i in kept], [splits[i] for i in kept]
    return divide(
        reading.source(paths),
        labels,
        splits if given else None,
        origin=str(root),
        drop_small_classes=reading.drop_small_classes,
        test_share=test_share,
        notes=notes,
    )


def _has_splits(root: Path) -> bool:
    """Tell whether `train` and `test` hold classes. A class called `train` holds images, not folders."""
    folders = _subfolders(root)
    parts = [folder.name for folder in folders if folder.name.casefold() in PARTS and _subfolders(folder)]
    missing = [split for split in SPLITS if split not in parts]
    if len(missing) == 1 or (len(parts) > 1 and len(missing) == len(SPLITS) and len(parts) == len(folders)):
        first = next((name for name in parts if "train" in name.casefold()), parts[0])
        raise UserError(
            f"{root} has class folders in {listing([repr(name) for name in parts])} but none in "
            f"{listing([repr(name) for name in missing])}: add or rename them, or set `root` to {root / first} to use "
            "the first half of its classes for training"
        )
    return not missing


def _subfolders(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _notes_on_links(classes: list[Path]) -> list[str]:
    """Say which classes are links to one another."""
    targets = {folder.resolve(): folder for folder in classes if not folder.is_symlink()}
    return [
        f"class {folder.name} is a link to class {targets[folder.resolve()].name}: the images count once, for the first"
        for folder in classes
        if folder.is_symlink() and folder.resolve() in targets
    ]
