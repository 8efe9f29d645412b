"""The pool: training images that a problem's proxies are chosen from, and that tell later how stale they are."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ccp_dml.data.labelled import LabelledSet
from ccp_dml.data.loading import Batch, load_rows
from ccp_dml.evaluation import embed
from ccp_dml.foundation.process_group import ALONE, Processes
from ccp_dml.foundation.randomness import generator, seeds_of_rows
from ccp_dml.proxies import draw_pool

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
        processes: those that train together; each embeds whole batches of a part of the pool, and all get all of it.
    """

    def __init__(
        self,
        data: LabelledSet,
        size: int,
        seed: int,
        batch_size: int,
        workers: int,
        processes: Processes = ALONE,
    ) -> None:
        self.data, self.size, self.seed = data, size, seed
        self.batch_size, self.workers, self.processes = batch_size, workers, processes
        self._origins: tuple[int, Tensor, list[Batch]] | None = None  # problem, sampled proxies, their images

    def embed(self, network: nn.Module, problem: int) -> Tensor:
        """Embed the pool of a problem, augmented and un-normalised: (C, b, D) (D8, D9)."""
        rows, seeds = self._draw(problem)
        own = self.processes.share_of(rows.numel(), self.batch_size)
        batches = load_rows(self.data, rows.flatten()[own], seeds.flatten()[own], self.batch_size, self.workers)
        return embed(network, batches, raw=True, processes=self.processes)[0].unflatten(0, rows.shape)

    def embed_in_chunks(
        self, network: nn.Module, problem: int, classes: int, own: slice = slice(None)
    ) -> Iterator[Tensor]:
        """Embed the same pool, or the part of the `own` classes, in chunks of so many `classes`, (c, b, D) each.

        Every image is embedded in the company that it has in `embed`, which decides about the last digit: where a batch
        reaches beyond a chunk, all of it is embedded. No batch does if `classes` is a multiple of the batch size and
        `own` begins at such a multiple, too.
        """
        rows, seeds = (drawn.flatten() for drawn in self._draw(problem))
        start, stop, _ = own.indices(len(rows) // self.size)
        for first in range(start * self.size, stop * self.size, classes * self.size):
            last = min(first + classes * self.size, stop * self.size)
            begin = first // self.batch_size * self.batch_size
            end = -(-last // self.batch_size) * self.batch_size
            batches = load_rows(self.data, rows[begin:end], seeds[begin:end], self.batch_size, self.workers)
            yield embed(network, batches, raw=True)[0][first - begin : last - begin].unflatten(0, (-1, self.size))

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
        draw = generator(self.seed, "origins of proxies", problem)
        sampled = torch.randperm(taken.numel(), generator=draw)[:SAMPLED_PROXIES]
        rows, seeds = (drawn.gather(1, taken).flatten()[sampled] for drawn in self._draw(problem))
        return sampled, list(load_rows(self.data, rows, seeds, self.batch_size, self.workers))

    def _draw(self, problem: int) -> tuple[Tensor, Tensor]:
        """Draw rows (C, b) of the data, and the seed (C, b) of each image's augmentation."""
        rows = draw_pool(self.data.labels, self.size, generator(self.seed, "pool", problem))
        return rows, seeds_of_rows(rows.numel(), self.seed, "pool augmentation", problem).view_as(rows)
