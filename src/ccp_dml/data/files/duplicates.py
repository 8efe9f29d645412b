"""Files with the same content under several names: what makes a score too good, or a class two."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ccp_dml.data.files.images import ImageFiles
from ccp_dml.data.labelled import DataHalves, LabelledSet
from ccp_dml.foundation.digests import file_digest


def equal_files(paths: Sequence[Path]) -> list[list[Path]]:
    """Group the files that are equal byte by byte; those without an equal are left out.

    Only files of equal size are read, so that this is quick on photographs.
    """
    return [group for same_size in _grouped(paths, _size) for group in _grouped(same_size, file_digest)]


def shared_by_halves(halves: DataHalves) -> list[tuple[Path, Path]]:
    """Pair each test image with a training image that is the same file under another name."""
    train, test = set(_files([halves.train])), set(_files([halves.test.queries, halves.test.gallery]))
    pairs = []
    for group in equal_files(sorted(train | test)):
        learned = [path for path in group if path in train]
        pairs += [(learned[0], path) for path in group if learned and path in test]
    return pairs


def _files(parts: Iterable[LabelledSet | None]) -> list[Path]:
    found = []
    for part in parts:
        if part is not None and isinstance(part.source, ImageFiles):
            found += [part.source.paths[position] for position in part.positions.tolist()]
    return found


def _size(path: Path) -> int:
    return os.stat(path).st_size


def _grouped(paths: Sequence[Path], key: Callable[[Path], object]) -> list[list[Path]]:
    groups: dict[object, list[Path]] = {}
    for path in paths:
        try:
            groups.setdefault(key(path), []).append(path)
        except OSError:
            continue  # a file that cannot be read is told of where it is decoded
    return [group for group in groups.values() if len(group) > 1]
