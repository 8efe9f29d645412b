"""Look a data set over before anybody trains on it: sizes, broken and tiny images, small classes, copies, leakage."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from PIL import Image
from torch import Tensor

from ccp_dml.data.files.csv_table import TABLES, load_csv
from ccp_dml.data.files.folder import load_folder
from ccp_dml.data.files.images import FORMATS, ImageFiles, ImageReading, find_broken
from ccp_dml.data.labelled import DataHalves, LabelledSet
from ccp_dml.data.splits import LEAST_CLASSES, LEAST_IMAGES
from ccp_dml.errors import UserError
from ccp_dml.foundation.digests import file_digest

TINY_SIDE = 32  # pixels


@dataclass(frozen=True)
class HalfHealth:
    """The sizes of one half."""

    classes: int
    images: int
    smallest: int  # images of the smallest class
    middle: float  # images of the median class
    largest: int


@dataclass(frozen=True)
class Finding:
    """One thing that was found, of several images, groups of images or classes."""

    what: str  # with the number before it, a sentence
    names: list[str]
    spoils_results: bool = False

    @property
    def sentence(self) -> str:
        return f"{len(self.names):,} {self.what}"


@dataclass(frozen=True)
class DataHealth:
    """What was found in a data set; names are paths as they were given, classes by their names."""

    source: str
    halves: dict[str, HalfHealth]
    small_classes: list[str]
    broken: dict[str, str]  # image -> why
    tiny: list[str]
    copies: list[list[str]]  # groups of equal files
    copies_across_classes: list[list[str]]
    leaked: list[tuple[str, str]]  # test image, training image
    sides: tuple[int, float, int]  # short side of the images: least, median, largest
    notes: tuple[str, ...]
    alone: list[str] = field(default_factory=list)  # the images of training classes that have no other

    @property
    def findings(self) -> list[Finding]:
        """List what was found, the worst first."""
        possible = [
            Finding("images cannot be read", [f"{name} ({why})" for name, why in self.broken.items()], True),
            Finding(
                "training classes have a single image, which training refuses (add images, remove the class, or train "
                "with data.drop_small_classes=true)",
                self.alone,
                True,
            ),
            Finding(
                f"training classes have fewer than {LEAST_IMAGES} images, which training refuses where fewer than "
                f"{LEAST_CLASSES} classes train (add classes or images, or train on more of them by data.test_share)",
                self._too_small_to_validate,
                True,
            ),
            Finding("test images are copies of training images", [f"{a} of {b}" for a, b in self.leaked], True),
            Finding("groups of equal files have different classes", _joined(self.copies_across_classes), True),
            Finding(f"classes have fewer than {LEAST_IMAGES} images", self.small_classes),
            Finding(f"images have a side below {TINY_SIDE} pixels", self.tiny),
            Finding("groups of equal files are in the data", _joined(self.copies)),
        ]
        return [one for one in possible if one.names]

    @property
    def _too_small_to_validate(self) -> list[str]:
        few = self.halves["train"].classes < LEAST_CLASSES
        return [name for name in self.small_classes if few and name.startswith("train/")]

    @property
    def problems(self) -> list[str]:
        """List in words what spoils results."""
        return [one.sentence for one in self.findings if one.spoils_results]


def check_data(
    source: Path, root: Path | None = None, split_column: str | None = None, test_share: float = 0.5
) -> DataHealth:
    """Look over a folder with a subfolder per class, or a table, whose relative paths start at `root` if it is given.

    See `load_folder` and `load_csv`, also for what divides the images into halves.
    """
    source = source.expanduser()
    reading = ImageReading(_not_asked_for, _not_asked_for, drop_small_classes=True)
    if source.is_file() and source.suffix.lower() in TABLES:
        column = split_column or "split"
        halves = load_csv(source, reading, root=root, keep_missing=True, test_share=test_share, split_column=column)
    elif root is not None:
        raise UserError(f"--root {root} is for the paths of a table, and {source} is none: leave it out.")
    elif split_column is not None:
        raise UserError(f"--split-column {split_column} is a column of a table, and {source} is none: leave it out.")
    elif source.is_dir():
        halves = load_folder(source, reading, test_share)
    else:
        raise UserError(f"{source} is neither a folder with a subfolder per class nor a table ({' or '.join(TABLES)}).")
    return health_of(halves, str(source))


def health_of(halves: DataHalves, source: str) -> DataHealth:
    """Look over a data set of image files that has been divided."""
    parts = {"train": [halves.train], "test": [part for part in halves.test.sides() if part]}
    class_of = {path: name for several in parts.values() for part in several for path, name in _named(part)}
    paths = sorted(class_of)
    broken = {paths[place]: why for place, why in find_broken(paths).items()}
    sides = {path: side for path in paths if path not in broken and (side := short_side(path)) is not None}
    copies = equal_files(paths)
    sizes = {half: Counter(name for part in several for _, name in _named(part)) for half, several in parts.items()}
    measured = sorted(sides.values()) or [0]
    return DataHealth(
        source,
        {half: _half(list(counts.values())) for half, counts in sizes.items()},
        [f"{half}/{name}" for half, counts in sizes.items() for name, count in counts.items() if count < LEAST_IMAGES],
        {str(path): why for path, why in broken.items()},
        [str(path) for path, side in sides.items() if side < TINY_SIDE],
        [[str(path) for path in group] for group in copies],
        [[str(path) for path in group] for group in copies if len({class_of[path] for path in group}) > 1],
        [(str(test), str(train)) for train, test in shared_by_halves(halves)],
        (measured[0], median(measured), measured[-1]),
        halves.notes,
        [str(path) for path in _source(halves.train).paths if path not in class_of],
    )


def short_side(path: Path) -> int | None:
    """Read the short side of an image from its header; None where that cannot be told."""
    try:
        with Image.open(path, formats=FORMATS) as image:
            return min(image.size)
    except (OSError, ValueError, Image.DecompressionBombError):
        return None


def _joined(groups: Iterable[Sequence[str]]) -> list[str]:
    return [" = ".join(group) for group in groups]


def _not_asked_for(_: object) -> Tensor:
    raise AssertionError("files are looked at here, not turned into network inputs")


def _named(part: LabelledSet) -> Iterable[tuple[Path, str]]:
    paths = _source(part).paths
    for position, label in zip(part.positions.tolist(), part.labels.tolist(), strict=True):
        yield paths[position], part.class_names[label]


def _source(part: LabelledSet) -> ImageFiles:
    assert isinstance(part.source, ImageFiles), "folders and tables hold image files"
    return part.source


def _half(counts: Sequence[int]) -> HalfHealth:
    counts = counts or [0]
    return HalfHealth(sum(count > 0 for count in counts), sum(counts), min(counts), median(counts), max(counts))


def equal_files(paths: Sequence[Path]) -> list[list[Path]]:
    """Group the files that are equal byte by byte; those without an equal are left out.

    Only files of equal size are read, so that this is quick on photographs.
    """
    return [
        group
        for same_size in _grouped(paths, lambda path: path.stat().st_size)
        for group in _grouped(same_size, file_digest)
    ]


def shared_by_halves(halves: DataHalves) -> list[tuple[Path, Path]]:
    """Pair each test image with a training image that is the same file under another name."""
    train, test = set(_files([halves.train])), set(_files(halves.test.sides()))
    pairs = []
    for group in equal_files(sorted(train | test)):
        learned = [path for path in group if path in train]
        pairs += [(learned[0], path) for path in group if learned and path in test]
    return pairs


def _files(parts: Iterable[LabelledSet]) -> list[Path]:
    return [path for part in parts if isinstance(part.source, ImageFiles) for path, _ in _named(part)]


def _grouped(paths: Sequence[Path], key: Callable[[Path], object]) -> list[list[Path]]:
    groups: dict[object, list[Path]] = {}
    for path in paths:
        try:
            groups.setdefault(key(path), []).append(path)
        except OSError:
            continue  # a file that cannot be read is told of where it is decoded
    return [group for group in groups.values() if len(group) > 1]
