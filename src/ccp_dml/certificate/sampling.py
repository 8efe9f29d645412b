"""Draw images for a certificate, and independent pairs of them: no image, or no class, occurs in two pairs.

All N(N-1)/2 pairs of N images share images, and an unusual image spoils N-1 of them at once: counted as if they were
independent, they would promise far more than N images can know. Which images are paired depends on labels alone.
"""

from bisect import bisect_right

import torch
from torch import Tensor


def same_class_pairs(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Pair images of one class, every image at most once: rows (n, 2) for `labels` (N,).

    A class of m images gives m // 2 pairs, so that it weighs as much as it has images.
    """
    order, turn = _shuffled_by_class(labels, generator)
    first, second = order[:-1], order[1:]
    return torch.stack([first, second], dim=1)[(turn[:-1] % 2 == 0) & (labels[first] == labels[second])]


def different_class_pairs(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Pair images of different classes, every image at most once: rows (n, 2) for `labels` (N,).

    All images are paired at random, and pairs of one class dropped: any two images of different classes are equally
    likely to meet.
    """
    order = torch.randperm(len(labels), generator=generator)
    pairs = order[: len(order) // 2 * 2].view(-1, 2)
    return pairs[labels[pairs[:, 0]] != labels[pairs[:, 1]]]


def one_pair_per_class(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Draw two images of every class that has two: rows (n, 2), independent even if classes were drawn at random."""
    order, turn = _shuffled_by_class(labels, generator)
    first, second = order[:-1], order[1:]
    return torch.stack([first, second], dim=1)[(turn[:-1] == 0) & (labels[first] == labels[second])]


def one_pair_per_two_classes(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Pair the classes at random, every class at most once, and draw one image of each: rows (n, 2)."""
    order, turn = _shuffled_by_class(labels, generator)
    one_of_each = order[turn == 0]
    shuffled = one_of_each[torch.randperm(len(one_of_each), generator=generator)]
    return shuffled[: len(shuffled) // 2 * 2].view(-1, 2)


def _shuffled_by_class(labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Order all rows (N,) by class, at random within; also each row's turn (N,) in its class: 0, 1, ..."""
    shuffled = torch.randperm(len(labels), generator=generator)
    order = shuffled[torch.argsort(labels[shuffled], stable=True)]
    _, sizes = torch.unique_consecutive(labels[order], return_counts=True)
    starts = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    return order, torch.arange(len(order)) - starts


ENOUGH_PER_CLASS = 10  # images of a class beyond these are given up before a whole class is


def draw_images(labels: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Draw at most `most` images, equally many of each class as far as possible: ascending rows (n,) for `labels` (N,).

    First large classes are cut to a common size. Where that size would fall below ENOUGH_PER_CLASS, whole classes are
    left out at random: those that remain are a fair draw of all classes.
    """
    if len(labels) <= most:
        return torch.arange(len(labels))
    order, turn = _shuffled_by_class(labels, generator)
    _, numbers, sizes = torch.unique(labels[order], return_inverse=True, return_counts=True)
    limit = min(max(ENOUGH_PER_CLASS, _common_size(sizes, most)), most)  # there is room for one class at least
    kept = turn < limit
    taken = torch.randperm(len(sizes), generator=generator)  # classes, in the order in which they are let in
    has_room = torch.empty(len(sizes), dtype=torch.bool)
    has_room[taken] = sizes[taken].clamp(max=limit).cumsum(0) <= most
    return order[kept & has_room[numbers]].sort().values


def _common_size(sizes: Tensor, most: int) -> int:
    """Find the largest size to cut classes of `sizes` (C,) to, so that all together are at most `most`."""
    return bisect_right(range(1, int(sizes.max()) + 1), most, key=lambda size: int(sizes.clamp(max=size).sum()))
