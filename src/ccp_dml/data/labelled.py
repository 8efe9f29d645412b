"""The form of every data set: a source of items, and which of them carry which label."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from PIL import Image
from torch import Tensor

from ccp_dml.foundation.digests import digest, tensor_digest


class Source(Protocol):
    """Loads items by position: images from files, images in memory, precomputed features."""

    in_memory: bool

    def __len__(self) -> int: ...

    def load(self, positions: Tensor, seeds: Tensor | None) -> Tensor:
        """Load network inputs (B, ...): uint8 images (B, 3, H, W) or float features (B, F).

        With `seeds` None the evaluation transform applies; otherwise the training augmentation, with one seed (B,) per
        item. What an item looks like depends on the item and its own seed alone, not on what is loaded beside it; no
        global random state is read or left changed.
        """

    def name(self, position: int) -> str:
        """Name the item for a person: its path, or its row."""

    def picture(self, position: int) -> Image.Image | None:
        """Give the item as a picture for a person; None if there is nothing to see."""

    def signature(self, positions: Tensor) -> str:
        """Digest everything that could change what `load` gives for `positions`: contents and transforms."""


@dataclass(frozen=True)
class LabelledSet:
    """Items of a source with their labels, renumbered so that label c is `class_names[c]`."""

    source: Source
    positions: Tensor  # (N,) int64, where the items stand in the source
    labels: Tensor  # (N,) int64, 0..C-1
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.positions)

    def load(self, rows: Tensor, seeds: Tensor | None = None) -> Tensor:
        """Load network inputs (B, ...) of the given rows of this set; see `Source.load`."""
        return self.source.load(self.positions[rows], seeds)

    def of_classes(self, classes: Sequence[int]) -> "LabelledSet":
        """Select `classes`, whose labels become 0, 1, ... in the order given."""
        renumbered = torch.full((len(self.class_names),), -1, dtype=torch.int64)
        renumbered[torch.as_tensor(classes, dtype=torch.int64)] = torch.arange(len(classes))
        labels = renumbered[self.labels]
        kept = labels >= 0
        names = tuple(self.class_names[c] for c in classes)
        return LabelledSet(self.source, self.positions[kept], labels[kept], names)


@dataclass(frozen=True)
class TestSet:
    """What the final scores are measured on. Without a gallery, every item queries all the others."""

    __test__ = False  # not a pytest class

    queries: LabelledSet
    gallery: LabelledSet | None = None

    def sides(self) -> list[LabelledSet]:
        """List queries and gallery apart: they may come from different sources."""
        return [self.queries] if self.gallery is None else [self.queries, self.gallery]

    def changed(self, change: Callable[[LabelledSet], LabelledSet]) -> "TestSet":
        """Change queries and gallery in the same way."""
        return TestSet(*map(change, self.sides()))


@dataclass(frozen=True)
class Parts:
    """The three sets that a run divides its data into."""

    learned: LabelledSet
    validation: TestSet
    test: TestSet

    def sides(self) -> dict[str, list[LabelledSet]]:
        """Name the sets, each with its sides."""
        return {"training": [self.learned], "validation": self.validation.sides(), "test": self.test.sides()}


@dataclass(frozen=True)
class DataHalves:
    """The official division of a data set: classes to learn from, and classes nobody looks at before the end."""

    train: LabelledSet
    test: TestSet
    notes: tuple[str, ...] = ()  # what the user should know about the data: what was left out, and why
    incomplete: tuple[str, ...] = ()  # how a published data set differs from what was published; tables must say so
    says_what_tests: bool = True  # whether the data say which classes test, not `test_share`

    def sets(self) -> list[LabelledSet]:
        """List the training half, and the sides of the test half."""
        return [self.train, *self.test.sides()]

    @cached_property
    def digest(self) -> str:
        """Digest the classes, which item carries which label, and contents that are in memory.

        Files are not read for it: that would take as long as an epoch.
        """
        parts = []
        for each in filter(None, self.sets()):
            parts += [tensor_digest([("labels", each.labels)]), *each.class_names]
            parts += [each.source.signature(each.positions)] if each.source.in_memory else []
        return digest(*parts)
