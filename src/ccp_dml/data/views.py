"""Sources that stand in for a source of images: features of a frozen backbone in several views, and no augmentation."""

from dataclasses import replace

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ccp_dml.data.labelled import DataHalves, LabelledSet, Source
from ccp_dml.foundation.digests import digest


class FeatureViews:
    """A source of features (V, N, F) in place of a source's items; view 0 is the evaluation transform's.

    Args:
        images: the source whose items were seen, for names and pictures.
        positions: (N,) which of its items.
        views: (V, N, F) in half precision, normally mapped from a file: only what a batch needs is read.
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
    """A source that ignores seeds: every item always looks the same."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.in_memory = source.in_memory

    def __len__(self) -> int:
        return len(self.source)

    def load(self, positions: Tensor, seeds: Tensor | None) -> Tensor:  # noqa: ARG002 that is its purpose
        return self.source.load(positions, None)

    def name(self, position: int) -> str:
        return self.source.name(position)

    def picture(self, position: int) -> Image.Image | None:
        return self.source.picture(position)

    def signature(self, positions: Tensor) -> str:
        return digest("unaugmented", self.source.signature(positions))


def without_augmentation(halves: DataHalves) -> DataHalves:
    """Switch augmentation off; only the training half has any."""
    return replace(halves, train=replace(halves.train, source=Unaugmented(halves.train.source)))
