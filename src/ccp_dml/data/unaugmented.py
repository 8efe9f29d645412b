"""A data set whose training images are seen as the evaluation sees them."""

from dataclasses import replace

from PIL import Image
from torch import Tensor

from ccp_dml.data.labelled import DataHalves, Source
from ccp_dml.foundation.digests import digest


class Unaugmented:
    """A source that ignores seeds: every item always looks the same."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.in_memory = source.in_memory

    def __len__(self) -> int:
        return len(self.source)

    def load(self, positions: Tensor, seed: int | None) -> Tensor:  # noqa: ARG002 that is its purpose
        return self.source.load(positions, None)

    def name(self, position: int) -> str:
        return self.source.name(position)

    def picture(self, position: int) -> Image.Image | None:
        return self.source.picture(position)

    def signature(self, positions: Tensor) -> str:
        return digest("unaugmented", self.source.signature(positions))


def without_augmentation(halves: DataHalves) -> DataHalves:
    """The same halves; only training asks for augmentation, so only the training half changes."""
    return replace(halves, train=replace(halves.train, source=Unaugmented(halves.train.source)))
