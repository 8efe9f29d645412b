"""Sources that stand in for a source of images: features of a frozen backbone in several views, and no augmentation."""

from dataclasses import replace

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ccp_dml.data.files.images import ImageFiles
from ccp_dml.data.labelled import DataHalves, LabelledSet, Source
from ccp_dml.foundation.digests import digest

KEPT_SIDE = 64
"""Of larger images a pass of the network takes longer than decoding, which loader processes do meanwhile."""
KEPT_BYTES = 1 << 28


class FeatureViews:
    """A source of features (V, N, F) in place of a source's items; view 0 is the evaluation transform's.

    Args:
        images: the source whose items were seen, for names and pictures.
        positions: (N,) which of its items.
        views: (V, N, F) in half or single precision, normally mapped from a file: only what a batch needs is read.
    """

    in_memory = True

    def __init__(self, images: Source, positions: Tensor, views: np.ndarray) -> None:
        self.images = images
        self.views = views
        self._row_of_position = torch.full((len(images),), -1, dtype=torch.int64)
        self._row_of_position[positions] = torch.arange(len(positions))

    def __len__(self) -> int:
        return len(self.images)

    def load(self, positions: Tensor, seeds: Tensor | None) -> Tensor:
        """Load features (B, F): view 0, or with seeds the augmented view that each item's own seed draws."""
        rows = self._row_of_position[positions]
        if (rows < 0).any():
            raise IndexError("these items were not seen: there are no features of them")
        chosen = torch.zeros_like(rows)
        augmented = len(self.views) - 1
        if seeds is not None and augmented > 0:
            chosen = 1 + seeds % augmented
        return torch.from_numpy(self.views[chosen.numpy(), rows.numpy()]).float()

    def name(self, position: int) -> str:
        return self.images.name(position)

    def picture(self, position: int) -> Image.Image | None:
        return self.images.picture(position)

    def signature(self, positions: Tensor) -> str:
        return self.images.signature(positions)


def with_features(data: LabelledSet, views: np.ndarray) -> LabelledSet:
    """Replace the items of a set by their features (V, N, F)."""
    return LabelledSet(FeatureViews(data.source, data.positions, views), data.positions, data.labels, data.class_names)


class Unaugmented:
    """A source that ignores seeds: every item always looks the same.

    Args:
        source: where the items come from.
        keep: hold what has been loaded in memory. A training asks for each item hundreds of times; decoding a small
            image file takes longer than a small network's pass.
    """

    def __init__(self, source: Source, *, keep: bool = False) -> None:
        self.source = source
        self.in_memory = source.in_memory
        self.keep = keep
        self._kept: tuple[Tensor, Tensor] | None = None  # inputs (N, ...), and which of them have been loaded (N,)

    def __len__(self) -> int:
        return len(self.source)

    def load(self, positions: Tensor, seeds: Tensor | None) -> Tensor:  # noqa: ARG002 that is its purpose
        if not self.keep:
            return self.source.load(positions, None)
        if self._kept is None:
            like = self.source.load(positions[:1], None)
            self._kept = like.new_empty((len(self), *like.shape[1:])), torch.zeros(len(self), dtype=torch.bool)
        inputs, loaded = self._kept
        missing = positions[~loaded[positions]].unique()
        if len(missing):
            inputs[missing] = self.source.load(missing, None)
            loaded[missing] = True
        return inputs[positions]

    def name(self, position: int) -> str:
        return self.source.name(position)

    def picture(self, position: int) -> Image.Image | None:
        return self.source.picture(position)

    def signature(self, positions: Tensor) -> str:
        return digest("unaugmented", self.source.signature(positions))


def without_augmentation(halves: DataHalves, side: int | None = None) -> DataHalves:
    """Switch augmentation off; only the training half has any. Files whose views of `side` are small are read once."""
    source = halves.train.source
    keep = isinstance(source, ImageFiles) and side is not None and fits_in_memory(len(source), side)
    return replace(halves, train=replace(halves.train, source=Unaugmented(source, keep=keep)))


def fits_in_memory(images: int, side: int) -> bool:
    """Tell whether square images of `side` pixels are so small, and all together so few, that they are best kept."""
    return side <= KEPT_SIDE and images * 3 * side**2 <= KEPT_BYTES
