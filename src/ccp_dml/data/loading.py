"""Load rows as batches, in the main process or in workers, with the same result."""

import os
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ccp_dml.data.labelled import LabelledSet, Source
from ccp_dml.data.sampler import ClassBalancedBatches
from ccp_dml.data.views import FeatureViews
from ccp_dml.errors import UserError
from ccp_dml.foundation import randomness

Batch = tuple[Tensor, Tensor]  # inputs (B, ...), labels (B,)
BLOCK = 128
"""Images that are augmented together outside training. A constant: how many fit into memory must not matter."""

Request = tuple[list[int], int | None]  # rows of one whole batch; the seed of their augmentation, None for evaluation


def auto_workers(source: Source) -> int:
    """Count the loader processes that pay off: none if loading is indexing, otherwise one per usable core up to 8."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 0 if source.in_memory else min(usable, 8)


def loader_processes(wanted: int | None, source: Source) -> int:
    """Count the processes that load from `source`: as many as `wanted`, or as pay off. Features never need any."""
    return auto_workers(source) if wanted is None or isinstance(source, FeatureViews) else wanted


class TrainingBatches:
    """An endless iterator of class-balanced, augmented batches: inputs (B, ...) and labels (B,).

    A worker loads a whole batch, whose augmentation is seeded by (seed, epoch, position): the number of workers changes
    nothing but the speed. The state counts the batches handed out, not those that workers have prepared.
    """

    def __init__(
        self,
        data: LabelledSet,
        sampler: ClassBalancedBatches,
        seed: int,
        workers: int = 0,
        pin_memory: bool = False,
    ) -> None:
        self.sampler = sampler
        self._loader = _loader(data, _TrainingRequests(sampler, seed), workers, pin_memory, persistent=True)
        self._iterator: Iterator[Batch | UserError] | None = None

    def __iter__(self) -> "TrainingBatches":
        return self

    def __next__(self) -> Batch:
        if self._iterator is None:
            self._iterator = iter(self._loader)
        batch = _checked(next(self._iterator))
        self.sampler.advance()
        return batch

    def state_dict(self) -> dict[str, int]:
        return self.sampler.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.sampler.load_state_dict(state)
        self._iterator = None  # what was prepared for the old place is of no use


def evaluation_batches(data: LabelledSet, batch_size: int, workers: int = 0) -> Iterator[Batch]:
    """Load all of `data` once, in order, under the evaluation transform: inputs (B, ...) and labels (B,)."""
    return load_rows(data, torch.arange(len(data)), None, batch_size, workers)


def load_rows(
    data: LabelledSet, rows: Tensor, seed: int | None, batch_size: int, workers: int = 0, skip: int = 0
) -> Iterator[Batch]:
    """Load the given `rows` (n,) in order: inputs (B, ...) and labels (B,), at most `batch_size` at once.

    With a `seed` under the training augmentation, which differs between repetitions of a row; otherwise under the
    evaluation transform. What a row looks like depends neither on `batch_size` nor on how many of the first rows are
    left out; with a `seed`, `skip` must be a multiple of `BLOCK`.
    """
    requests = _seeded(rows, seed)[skip // BLOCK :] if seed is not None else _plain(rows[skip:], batch_size)
    loader = _loader(data, requests, min(workers, len(requests)), pin_memory=False, persistent=False)
    for inputs, labels in map(_checked, loader):
        yield from zip(inputs.split(batch_size), labels.split(batch_size), strict=True)


def _plain(rows: Tensor, batch_size: int) -> list[Request]:
    return [(block.tolist(), None) for block in rows.split(batch_size)]


def _seeded(rows: Tensor, seed: int) -> list[Request]:
    return [
        (block.tolist(), randomness.derive_seed(seed, "block", number))
        for number, block in enumerate(rows.split(BLOCK))
    ]


class _TrainingRequests:
    """Requests without end, from the place where the sampler stands when an iteration begins."""

    def __init__(self, sampler: ClassBalancedBatches, seed: int) -> None:
        self._sampler = sampler
        self._seed = seed

    def __iter__(self) -> Iterator[Request]:
        epoch, position = self._sampler.epoch, self._sampler.position
        while True:
            rows = self._sampler.batch(epoch, position)
            yield rows.tolist(), randomness.derive_seed(self._seed, "augmentation", epoch, position, self._sampler.rank)
            position += 1
            if position == len(self._sampler):
                epoch, position = epoch + 1, 0


class _RequestedBatches(Dataset[Batch | UserError]):
    """What a loader process runs: one request, one batch."""

    def __init__(self, data: LabelledSet) -> None:
        self._data = data

    def __getitem__(self, request: Request) -> Batch | UserError:
        rows = torch.tensor(request[0])
        try:
            return self._data.load(rows, request[1]), self._data.labels[rows]
        except UserError as error:
            return error  # DataLoader would wrap a raised error's sentence in the worker's stack trace


def _loader(
    data: LabelledSet, requests: Iterable[Request], workers: int, pin_memory: bool, persistent: bool
) -> "DataLoader[Batch | UserError]":
    return DataLoader(
        _RequestedBatches(data),
        batch_size=None,
        sampler=requests,
        num_workers=workers,
        pin_memory=pin_memory,
        persistent_workers=persistent and workers > 0,
        generator=torch.Generator().manual_seed(0),  # seeds the workers, which draw nothing; else from global state
    )


def _checked(batch: Batch | UserError) -> Batch:
    if isinstance(batch, UserError):
        # Not `raise batch`: an error that its own stack trace refers to keeps the workers until the garbage collector,
        # which breaks their queues first, so that each of them is waited for in vain for five seconds.
        raise UserError(str(batch))
    inputs, labels = batch
    return inputs, labels
