"""How many pairs a loss still learns from."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

from ccp_dml.foundation.process_group import ALONE, Processes


@dataclass(frozen=True)
class MeasuredPairs:
    """Distances or similarities (B, U) that a loss has asked for, and which of them are of one class."""

    values: Tensor
    positive: Tensor
    negative: Tensor
    left_out: int = 0  # negative pairs that the loss did not ask for, because they do not count
    holders: Processes = ALONE  # who has such pairs; what stands here are this process's own

    @property
    def size(self) -> int:
        """Count the pairs of all holders; these have to ask together."""
        return int(self.holders.total(torch.tensor(self.values.numel() + self.left_out)))


@dataclass(frozen=True)
class PairActivity:
    """Which share of the pairs moves the embeddings; see `active_share`."""

    positives: float
    negatives: float


_record: ContextVar[list[MeasuredPairs] | None] = ContextVar("pairs that losses measure", default=None)


@contextmanager
def recorded_pairs() -> Iterator[list[MeasuredPairs]]:
    """Collect the pairs that losses measure in the block; a backward pass leaves in `values.grad` what each counts."""
    record: list[MeasuredPairs] = []
    token = _record.set(record)
    try:
        yield record
    finally:
        _record.reset(token)


def recording() -> bool:
    """Tell whether anybody records pairs."""
    return _record.get() is not None


def note_pairs(
    values: Tensor, positive: Tensor, negative: Tensor, left_out: int = 0, holders: Processes = ALONE
) -> None:
    """Tell whoever records that a loss is about to use `values` (B, U); nobody does in an ordinary step."""
    record = _record.get()
    if record is not None and values.requires_grad:
        values.retain_grad()
        record.append(MeasuredPairs(values, positive, negative, left_out, holders))


def pair_activity(record: list[MeasuredPairs]) -> PairActivity | None:
    """Measure the activity in the largest recorded set: proxies or memory before the batch. None without gradients."""
    measured = [pairs for pairs in record if pairs.values.grad is not None]
    if not measured:
        return None
    pairs = max(measured, key=lambda candidate: candidate.size)
    assert pairs.values.grad is not None
    weights, positive, negative = pairs.values.grad.cpu(), pairs.positive.cpu(), pairs.negative.cpu()
    of_positives = active_share(weights, positive, holders=pairs.holders)
    of_negatives = active_share(weights, negative, pairs.left_out, pairs.holders)
    return PairActivity(float(of_positives), float(of_negatives))


def active_share(weights: Tensor, mask: Tensor, left_out: int = 0, holders: Processes = ALONE) -> Tensor:
    """Measure the share that the loss learns from, of the masked pairs and of `left_out` ones without weight.

    It is (sum |w|)^2 / (n sum w^2), 0 to 1, where the sums go over the pairs of all `holders`.

    With equal weights, as in a hinge, it is the share of pairs with any; a smooth loss, which gives every pair a
    little, counts as many as would do the same with equal weights. 0 without pairs.
    """
    weights = weights.abs().double() * mask  # in double, the squares of a scaled loss neither overflow nor vanish
    count = holders.total(mask.sum() + left_out)
    squares = count * holders.total(weights.square().sum())
    return torch.where(squares > 0, holders.total(weights.sum()).square() / squares, 0.0)
