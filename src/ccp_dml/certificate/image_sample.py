"""Which images of a large set are looked at: some of every class, or else all the more of some classes."""

import torch
from torch import Tensor

ENOUGH_PER_CLASS = 10  # images of a class beyond these are given up before a whole class is


def draw_images(labels: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Rows (n,), ascending, of at most `most` images; `labels` are (N,). All of them where they are no more than that.

    First large classes are cut to a common size. Where that size would fall below ENOUGH_PER_CLASS, whole classes are
    left out at random: those that remain are a fair draw of all classes.
    """
    if len(labels) <= most:
        return torch.arange(len(labels))
    shuffled = torch.randperm(len(labels), generator=generator)
    order = shuffled[torch.argsort(labels[shuffled], stable=True)]
    _, numbers, sizes = torch.unique(labels[order], return_inverse=True, return_counts=True)
    turn = torch.arange(len(order)) - (sizes.cumsum(0) - sizes)[numbers]  # 0, 1, ... within the class
    limit = min(max(ENOUGH_PER_CLASS, _common_size(sizes, most)), most)  # there is room for one class at least
    kept = turn < limit
    taken = torch.randperm(len(sizes), generator=generator)  # classes, in the order in which they are let in
    has_room = torch.empty(len(sizes), dtype=torch.bool)
    has_room[taken] = sizes[taken].clamp(max=limit).cumsum(0) <= most
    return order[kept & has_room[numbers]].sort().values


def _common_size(sizes: Tensor, most: int) -> int:
    """The largest size to which classes of `sizes` (C,) can be cut so that all together are at most `most`."""
    low, high = 0, int(sizes.max())
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if int(sizes.clamp(max=middle).sum()) <= most else (low, middle - 1)
    return low
