"""Load rows as batches, in the main process or in workers, with the same result."""

import itertools
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ccp_dml.data.labelled import LabelledSet, Source
from ccp_dml.data.sampler import ClassBalancedBatches
from ccp_dml.data.views import FeatureViews, Unaugmented
from ccp_dml.errors import UserError
from ccp_dml.foundation.machine import usable_cores
from ccp_dml.foundation.process_group import ALONE, Processes
from ccp_dml.foundation.randomness import seeds_of_rows

Batch = tuple[Tensor, Tensor]  # inputs (B, ...), labels (B,)
Request = tuple[list[int], list[int] | None]  # rows of one batch; the seeds of their augmentation, None for evaluation


def auto_workers(source: Source, shared_by: int = 1) -> int:
    """Count the loader processes that pay off: none if loading is indexing, otherwise one per usable core up to 8.

    Where the cores are `shared_by` several training processes, each has its part of the loaders, and at least one.
    """
    is_kept = isinstance(source, Unaugmented) and source.keep
    return 0 if source.in_memory or is_kept else max(1, min(usable_cores(), 8 * shared_by) // shared_by)


def loader_processes(wanted: int | None, source: Source, shared_by: int = 1) -> int:
    """Count the processes that load from `source`: as many as `wanted`, or as pay off. Features never need any.

    What is `wanted` for a machine is divided among the training processes that it is `shared_by`, rounded up.
    """
    if wanted is None or isinstance(source, FeatureViews):
        return auto_workers(source, shared_by)
    return -(-wanted // shared_by)


class TrainingBatches:
    """An endless iterator of class-balanced, augmented batches: inputs (B, ...) and labels (B,).

    A worker loads a whole batch. Its rows are augmented by seeds of their own, which follow from seed, epoch, position
    and place in the global batch: neither the number of workers nor that of ranks changes what a row looks like. The
    state counts the batches handed out, not those that workers have prepared.
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
        self._loader = _loader(data, _TrainingRequests(sampler, seed), workers, pin_memory)
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
        self.close()  # what was prepared for the old place is of no use

    def close(self) -> None:
        """End the loader processes now. The next batch would start others.

        Whoever is done must not leave it to the garbage collector: a process that is forked in the meantime has a copy
        of the garbage, and complains that the loaders which it finds there are not its own.
        """
        self._iterator = None


def evaluation_batches(
    data: LabelledSet, batch_size: int, workers: int = 0, processes: Processes = ALONE
) -> Iterator[Batch]:
    """Load all of `data` once, in order, under the evaluation transform: inputs (B, ...) and labels (B,).

    Several processes get whole batches of one range each: the batches are the same however many processes there are.
    """
    rows = torch.arange(len(data))[processes.share_of(len(data), batch_size)]
    return load_rows(data, rows, None, batch_size, workers)


def load_rows(
    data: LabelledSet, rows: Tensor, seeds: Tensor | None, batch_size: int, workers: int = 0
) -> Iterator[Batch]:
    """Load the given `rows` (n,) in order: inputs (B, ...) and labels (B,), at most `batch_size` at once.

    With `seeds` (n,) under the training augmentation, otherwise under the evaluation transform. What a row looks like
    depends neither on `batch_size` nor on the other rows.
    """
    if len(rows) == 0:
        return  # a range of rows may be empty, and splitting it would give one empty batch
    seeds_of_batches = itertools.repeat(None) if seeds is None else map(Tensor.tolist, seeds.split(batch_size))
    requests = list(zip(map(Tensor.tolist, rows.split(batch_size)), seeds_of_batches, strict=False))
    loader = _loader(data, requests, min(workers, len(requests)), pin_memory=False)
    yield from map(_checked, loader)


def load_views(data: LabelledSet, rows: Tensor, seeds: Tensor, block: int, workers: int = 0) -> Iterator[Tensor]:
    """Load all views of the given `rows` (n,) in order, at most `block` images at once: inputs (V, B, ...).

    View 0 is the evaluation's; view v is augmented by row v - 1 of `seeds` (V - 1, n).
    """
    if len(rows) == 0:
        return
    requests = list(
        zip(map(Tensor.tolist, rows.split(block)), map(Tensor.tolist, seeds.split(block, dim=1)), strict=True)
    )
    loader = DataLoader(
        _RequestedViews(data),
        batch_size=None,
        sampler=requests,
        num_workers=min(workers, len(requests)),
        generator=torch.Generator().manual_seed(0),
    )
    for views in loader:
        if isinstance(views, UserError):
            raise UserError(str(views))  # see `_checked`
        yield views


class _RequestedViews(Dataset[Tensor | UserError]):
    """What a loader process runs: one block of images, all of their views."""

    def __init__(self, data: LabelledSet) -> None:
        self._data = data

    def __getitem__(self, request: tuple[list[int], list[list[int]]]) -> Tensor | UserError:
        rows = torch.tensor(request[0])
        seeds = torch.tensor(request[1], dtype=torch.int64).reshape(len(request[1]), len(rows))
        try:
            if hasattr(self._data.source, "load_views"):
                views: Tensor = self._data.source.load_views(self._data.positions[rows], seeds)
                return views
            return torch.stack([self._data.load(rows), *(self._data.load(rows, one) for one in seeds)])
        except UserError as error:
            return error


class _TrainingRequests:
    """Requests without end, from the place where the sampler stands when an iteration begins."""

    def __init__(self, sampler: ClassBalancedBatches, seed: int) -> None:
        self._sampler = sampler
        self._seed = seed

    def __iter__(self) -> Iterator[Request]:
        epoch, position = self._sampler.epoch, self._sampler.position
        while True:
            rows = self._sampler.batch(epoch, position)
            seeds = seeds_of_rows(self._sampler.batch_size, self._seed, "augmentation", epoch, position)
            yield rows.tolist(), seeds[self._sampler.own].tolist()
            position += 1
            if position == len(self._sampler):
                epoch, position = epoch + 1, 0


class _RequestedBatches(Dataset[Batch | UserError]):
    """What a loader process runs: one request, one batch."""

    def __init__(self, data: LabelledSet) -> None:
        self._data = data

    def __getitem__(self, request: Request) -> Batch | UserError:
        rows, seeds = torch.tensor(request[0]), None if request[1] is None else torch.tensor(request[1])
        try:
            return self._data.load(rows, seeds), self._data.labels[rows]
        except UserError as error:
            return error  # DataLoader would wrap a raised error's sentence in the worker's stack trace


def _loader(
    data: LabelledSet, requests: Iterable[Request], workers: int, pin_memory: bool
) -> "DataLoader[Batch | UserError]":
    return DataLoader(
        _RequestedBatches(data),
        batch_size=None,
        sampler=requests,
        num_workers=workers,
        pin_memory=pin_memory,
        generator=torch.Generator().manual_seed(0),  # seeds the workers, which draw nothing; else from global state
    )


def _checked(batch: Batch | UserError) -> Batch:
    if isinstance(batch, UserError):
        # Not `raise batch`: an error that its own stack trace refers to keeps the workers until the garbage collector,
        # which breaks their queues first, so that each of them is waited for in vain for five seconds.
        raise UserError(str(batch))
    inputs, labels = batch
    return inputs, labels
