"""The pool: training images that a problem's proxies are chosen from, and that tell later how stale they are."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ccp_dml.data.labelled import LabelledSet
from ccp_dml.data.loading import BLOCK, Batch, load_rows
from ccp_dml.evaluation import embed
from ccp_dml.foundation.randomness import derive_seed, generator
from ccp_dml.proxies import draw_pool

SAMPLED_BLOCKS = 2
"""Blocks of the pool that the sampled proxies come from: images that were augmented together load together."""

SAMPLED_PROXIES = 64
"""The mean distance over so many proxies is known to a few percent, for the price of embedding one batch."""


class TrainingPool:
    """Draws images of every class anew for each problem, as a pure function of the seed and the problem's number.

    Args:
        data: the classes that train.
        size: images per class, b; see `proxies.pool_size`.
        seed: of the run.
        batch_size: images embedded at once.
        workers: processes that load images.
    """

    def __init__(self, data: LabelledSet, size: int, seed: int, batch_size: int, workers: int) -> None:
        self.data, self.size, self.seed = data, size, seed
        self.batch_size, self.workers = batch_size, workers
        self._origins: tuple[int, Tensor, list[Batch]] | None = None  # problem, sampled proxies, their images

    def embed(self, network: nn.Module, problem: int) -> Tensor:
        """Embed the pool of a problem, augmented and un-normalised: (C, b, D) (D8, D9)."""
        rows = self._rows(problem)
        return embed(network, self._load(rows.flatten(), problem), raw=True)[0].unflatten(0, rows.shape)

    def embed_origins(self, network: nn.Module, problem: int, taken: Tensor) -> tuple[Tensor, Tensor]:
        """Embed images that proxies were taken from once more: positions of proxies (n,) in C*P, embeddings (n, D).

        `taken` (C, P) tells which pool image each proxy is. The images are augmented as they were in the pool; they
        are kept until the next problem, so that a look at the proxies reads no file.
        """
        if self._origins is None or self._origins[0] != problem:
            self._origins = (problem, *self._sample_origins(problem, taken.cpu()))
        _, proxies, images = self._origins
        return proxies, embed(network, images, raw=True)[0]

    def _sample_origins(self, problem: int, taken: Tensor) -> tuple[Tensor, list[Batch]]:
        """Choose some of the proxies, and load their images."""
        rows = self._rows(problem).flatten()
        draw = generator(self.seed, "origins of proxies", problem)
        blocks = torch.randperm(-(-len(rows) // BLOCK), generator=draw)[:SAMPLED_BLOCKS].sort().values
        slots = (torch.arange(len(taken)).unsqueeze(1) * self.size + taken).flatten()  # (C*P,), places in the pool
        candidates = torch.isin(slots // BLOCK, blocks).nonzero().squeeze(1)
        sampled = candidates[torch.randperm(len(candidates), generator=draw)[:SAMPLED_PROXIES]]
        images = [
            (inputs, labels) for block in blocks.tolist() for inputs, labels in self._load_block(rows, problem, block)
        ]
        inputs, labels = (torch.cat(each) for each in zip(*images, strict=True))
        places = slots[sampled]
        within = torch.searchsorted(blocks, places // BLOCK) * BLOCK + places % BLOCK
        kept = inputs[within], labels[within]
        return sampled, list(zip(kept[0].split(self.batch_size), kept[1].split(self.batch_size), strict=True))

    def _rows(self, problem: int) -> Tensor:
        """Draw rows (C, b) of the data."""
        return draw_pool(self.data.labels, self.size, generator(self.seed, "pool", problem))

    def _load(self, rows: Tensor, problem: int, skip: int = 0) -> Iterator[Batch]:
        augmentation = derive_seed(self.seed, "pool augmentation", problem)
        return load_rows(self.data, rows, augmentation, self.batch_size, self.workers, skip)

    def _load_block(self, rows: Tensor, problem: int, block: int) -> Iterator[Batch]:
        return self._load(rows[: (block + 1) * BLOCK], problem, skip=block * BLOCK)
