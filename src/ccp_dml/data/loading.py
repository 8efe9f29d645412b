"""Load rows as batches, in the main process or in workers, with the same result."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

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
        requests = _TrainingRequests(sampler, seed)
        self._loader = _loader(partial(_load_batch, data), requests, workers, pin_memory=pin_memory)
        self._iterator: Iterator[Any] | None = None

    def __iter__(self) -> "TrainingBatches":
        return self

    def __next__(self) -> Batch:
        if self._iterator is None:
            self._iterator = iter(self._loader)
        inputs, labels = _checked(next(self._iterator))
        self.sampler.advance()
        return inputs, labels

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
    loader = _loader(partial(_load_batch, data), requests, min(workers, len(requests)))
    yield from ((inputs, labels) for inputs, labels in map(_checked, loader))


def load_views(data: LabelledSet, rows: Tensor, seeds: Tensor, block: int, workers: int = 0) -> Iterator[Tensor]:
    """Load all views of the given `rows` (n,) in order, at most `block` images at once: inputs (V, B, ...).

    View 0 is the evaluation's; view v is augmented by row v - 1 of `seeds` (V - 1, n).
    """
    if len(rows) == 0:
        return
    requests = list(
        zip(map(Tensor.tolist, rows.split(block)), map(Tensor.tolist, seeds.split(block, dim=1)), strict=True)
    )
    yield from map(_checked, _loader(partial(_load_block, data), requests, min(workers, len(requests))))


class _TrainingRequests:
    """Requests without end, from the place where the sampler stands when an iteration begins."""

    def __init__(self, sampler: ClassBalancedBatches, seed: int) -> None:
        self._sampler = sampler
        self._seed = seed

    def __iter__(self) -> Iterator[Request]:
        length = len(self._sampler)
        for batch in itertools.count(self._sampler.epoch * length + self._sampler.position):
            epoch, position = divmod(batch, length)
            rows = self._sampler.batch(epoch, position)
            seeds = seeds_of_rows(self._sampler.batch_size, self._seed, "augmentation", epoch, position)
            yield rows.tolist(), seeds[self._sampler.own].tolist()


def _load_batch(data: LabelledSet, request: Request) -> Batch:
    rows, seeds = torch.tensor(request[0]), None if request[1] is None else torch.tensor(request[1])
    return data.load(rows, seeds), data.labels[rows]


def _load_block(data: LabelledSet, request: tuple[list[int], list[list[int]]]) -> Tensor:
    """Load all views of a block of images."""
    rows = torch.tensor(request[0])
    seeds = torch.tensor(request[1], dtype=torch.int64).reshape(len(request[1]), len(rows))
    if hasattr(data.source, "load_views"):
        views: Tensor = data.source.load_views(data.positions[rows], seeds)
        return views
    return torch.stack([data.load(rows), *(data.load(rows, one) for one in seeds)])


class _Answers(Dataset[Any]):
    """What a loader process runs: it answers requests."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self._answer = answer

    def __getitem__(self, request: Any) -> Any:
        try:
            return self._answer(request)
        except UserError as error:
            return error  # DataLoader would wrap a raised error's sentence in the worker's stack trace


def _loader(
    answer: Callable[[Any], Any], requests: Iterable[Any], workers: int, *, pin_memory: bool = False
) -> "DataLoader[Any]":
    return DataLoader(
        _Answers(answer),
        batch_size=None,
        sampler=requests,
        num_workers=workers,
        pin_memory=pin_memory,
        generator=torch.Generator().manual_seed(0),  # seeds the workers, which draw nothing; else from global state
    )


def _checked(answer: Any) -> Any:
    if isinstance(answer, UserError):
        # Not `raise answer`: an error that its own stack trace refers to keeps the workers until the garbage collector,
        # which breaks their queues first, so that each of them is waited for in vain for five seconds.
        raise UserError(str(answer))
    return answer
