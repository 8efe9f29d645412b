"""Let the processes that train one network work together: gather, broadcast, agree, and share out the work.

Why N processes train exactly what one process trains. Each process r embeds its own rows of a global batch and gathers
the embeddings of all, in rank order; then every process computes the whole loss L of the whole batch, so that no loss
has to know about processes. L depends on the weights theta through the embeddings E_0 ... E_(N-1):

    dL/dtheta = sum over r of  (dE_r/dtheta)^T dL/dE_r

Process r can compute the r-th term alone, since it holds the graph of its own embeddings alone. torch's
`DistributedDataParallel`, which wraps the network and nothing else, averages what the processes compute. So the
backward pass of `gather` returns N times the own slice of dL/dE:

    1/N  sum over r of  (dE_r/dtheta)^T (N dL/dE_r)  =  dL/dtheta

Parameters behind the gathered embeddings, proxies for instance, are not wrapped: each process has their whole gradient.
Where each process holds a part of the proxies, it has the whole gradient of its part: `hand_out` leads from what all
have alike into what each computes for its part, and `total` leads back.

`Processes` is what a single process has: it waits for nobody, and everything is its own. `ProcessGroup` has the same
methods over torch's collective operations, so that who uses them reads the same in both cases.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

T = TypeVar("T")

PATIENCE = timedelta(hours=24)
"""How long processes wait for one that does something alone, such as computing features. None of them waits for a dead
one: the launcher ends all when one dies."""

NUMBERS_AT_ONCE = 1 << 24
"""How many numbers a process sends in one piece."""


class Processes:
    """One process that trains alone."""

    rank, count = 0, 1  # among all processes
    local_count = 1  # of this machine

    @property
    def is_first(self) -> bool:
        """Tell whether this is the process that writes files and talks to the user."""
        return self.rank == 0

    def share_of(self, count: int, chunk: int = 1, rank: int | None = None) -> slice:
        """Choose this process's range out of `count` rows; the ranges follow in rank order and consist of whole chunks.

        A chunk is what must not be torn: rows that are computed together may differ in the last digit from the same
        rows in other company. `rank` asks for another process's range.
        """
        chunks, rank = -(-count // chunk), self.rank if rank is None else rank
        first, last = (chunks * each // self.count * chunk for each in (rank, rank + 1))
        return slice(min(first, count), min(last, count))

    def gather(self, own: Tensor) -> Tensor:
        """Join the rows of all processes, equally many each, in rank order; gradients flow as described above."""
        return own

    def gather_rows(self, own: Sequence[Tensor], device: torch.device | None = None) -> Tensor:
        """Join the pieces of all processes, in rank order, without gradients; a process may have few rows, or none."""
        return torch.cat(list(own)).to(device)

    def hand_out(self, value: Tensor) -> Tensor:
        """Give `value`, which all processes have alike, to work that they share; its gradient is the sum of theirs."""
        return value

    def total(self, own: Tensor) -> Tensor:
        """Add up what the processes have; gradients flow to each as if it had all, since all go on with the total."""
        return own

    def largest(self, own: Tensor) -> Tensor:
        """Find the largest of what the processes have, entry by entry, without gradients."""
        return own

    def rows_to_first(self, own: Tensor, whole: Tensor | None) -> None:
        """Join the rows of all, which were shared out by `share_of`, in the first process's `whole`; others give None.

        They travel one process after the other, in pieces of bounded size.
        """
        if whole is not None:
            whole.copy_(own)

    def same(self, value: T) -> T:
        """Give all processes the first one's `value`, so that they decide alike."""
        return value

    def share(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite `tensors` with those of the first process."""

    def wait(self) -> None:
        """Go on when all processes have come here."""

    @contextmanager
    def first_goes_first(self) -> Iterator[None]:
        """Run the block in the first process, then in the others, which find what it left behind."""
        yield


class ProcessGroup(Processes):
    """The processes of torch's default group, which torchrun started."""

    def __init__(self) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self.local_count = int(os.environ.get("LOCAL_WORLD_SIZE", 1))

    def gather(self, own: Tensor) -> Tensor:
        joined: Tensor = _Gather.apply(own, self.rank, self.count)
        return joined

    def gather_rows(self, own: Sequence[Tensor], device: torch.device | None = None) -> Tensor:
        mine = torch.cat(list(own)).detach().to(device) if own else None
        shapes: list[Any] = [None] * self.count
        dist.all_gather_object(shapes, None if mine is None else (mine.shape, mine.dtype))
        rows = [0 if shape is None else shape[0][0] for shape in shapes]
        (_, *width), dtype = next(shape for shape in shapes if shape is not None)
        padded = torch.zeros(max(rows), *width, dtype=dtype, device=device if mine is None else mine.device)
        if mine is not None:
            padded[: len(mine)] = mine
        everyone = [torch.empty_like(padded) for _ in rows]
        dist.all_gather(everyone, padded)
        return torch.cat([part[:count] for part, count in zip(everyone, rows, strict=True)])

    def hand_out(self, value: Tensor) -> Tensor:
        handed: Tensor = _HandOut.apply(value)
        return handed

    def total(self, own: Tensor) -> Tensor:
        total: Tensor = _Total.apply(own)
        return total

    def largest(self, own: Tensor) -> Tensor:
        return _reduced(own.detach(), dist.ReduceOp.MAX)

    def rows_to_first(self, own: Tensor, whole: Tensor | None) -> None:
        rows = max(1, NUMBERS_AT_ONCE // max(1, own[:1].numel()))
        if whole is None:
            for piece in own.detach().split(rows):
                dist.send(piece.contiguous(), dst=0)
            return
        whole[self.share_of(len(whole))] = own.detach()
        for sender in range(1, self.count):
            for place in whole[self.share_of(len(whole), rank=sender)].split(rows):
                piece = torch.empty_like(place, device=own.device)
                dist.recv(piece, src=sender)
                place.copy_(piece)

    def same(self, value: T) -> T:
        values: list[Any] = [value]
        dist.broadcast_object_list(values, src=0)
        first: T = values[0]
        return first

    def share(self, tensors: Iterable[Tensor]) -> None:
        for tensor in map(Tensor.detach, tensors):
            dense = tensor.contiguous()
            dist.broadcast(dense, src=0)
            if dense is not tensor:
                tensor.copy_(dense)

    def wait(self) -> None:
        dist.all_reduce(torch.zeros(()))

    @contextmanager
    def first_goes_first(self) -> Iterator[None]:
        if not self.is_first:
            self.wait()
        yield
        if self.is_first:
            self.wait()


class _Gather(torch.autograd.Function):
    """Join equally shaped tensors in rank order; the gradient is the own slice's, times the number of processes."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, rank: int, count: int) -> Tensor:
        ctx.count, ctx.own = count, slice(rank * len(own), (rank + 1) * len(own))
        parts = [torch.empty_like(own, memory_format=torch.contiguous_format) for _ in range(count)]
        dist.all_gather(parts, own.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.count * gradient[ctx.own], None, None


class _HandOut(torch.autograd.Function):
    """Leave a tensor as it is; the gradient is the sum of the processes' gradients."""

    @staticmethod
    def forward(_: Any, value: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return _reduced(gradient, dist.ReduceOp.SUM)


class _Total(torch.autograd.Function):
    """Add up the processes' tensors; the gradient stays as it is, the same in all of them."""

    @staticmethod
    def forward(_: Any, own: Tensor) -> Tensor:
        return _reduced(own, dist.ReduceOp.SUM)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return gradient


def _reduced(own: Tensor, operation: Any) -> Tensor:
    reduced = own.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(reduced, operation)
    return reduced


ALONE = Processes()


def started_together() -> int:
    """Count the processes that torchrun, or whatever sets its variables, started to train together."""
    return int(os.environ.get("WORLD_SIZE", 1)) if "RANK" in os.environ else 1


def times_restarted() -> int:
    """Count how often torchrun has started these processes again because one of them died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def join() -> Processes:
    """Meet the processes that were started together with this one, if there are any."""
    if started_together() > 1 and not dist.is_initialized():
        on_gpus = torch.cuda.is_available() and dist.is_nccl_available()
        store, rank, count = next(rendezvous("env://"))
        # Restarted processes would find the addresses of the dead ones in torchrun's store.
        store = dist.PrefixStore(f"attempt {times_restarted()}", store)  # type: ignore[attr-defined]
        backend = "cpu:gloo,cuda:nccl" if on_gpus else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=PATIENCE)
    return current()


def current() -> Processes:
    """Give the processes that this one has joined; `ALONE` if it has joined none."""
    return ProcessGroup() if dist.is_available() and dist.is_initialized() else ALONE


def lost_another(error: RuntimeError) -> bool:
    """Tell whether an operation failed because another process is gone; torch has no error of its own for that."""
    words = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process exited")
    return isinstance(error, dist.DistError) or any(word in str(error) for word in words)


def leave() -> None:
    """Part from the other processes."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
