"""How classes lie in the embedding space: how tightly they are covered, and how far they are from each other."""

from collections.abc import Callable

import torch
from torch import Tensor

from ccp_dml.functional.distances import at_least_float32, leave_as_is, pairwise_distances

_BLOCK_ELEMENTS = 1 << 24  # numbers per padded block of classes, and distances per block of points


@torch.no_grad()
def mean_k_center_radius(embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Average, per class, the radii that k = 1..n greedy centres leave (section 5.6); also return the class's label.

    `embeddings` are (N, D), `labels` (N,). Returns radii (C,) and labels (C,), ascending. The first centre is the point
    nearest to the class's mean, so the result does not depend on the order of the points.
    """
    values, numbers, sizes = torch.unique(labels, return_inverse=True, return_counts=True)
    by_class = numbers.argsort(stable=True)
    starts = sizes.cumsum(0) - sizes
    radii = torch.empty(len(values), dtype=at_least_float32(embeddings[:0]).dtype, device=embeddings.device)
    for classes in _blocks_of_similar_size(sizes, embeddings.shape[1]):
        places = torch.arange(int(sizes[classes].max()), device=embeddings.device)
        real = places < sizes[classes].unsqueeze(1)  # (c, n)
        rows = by_class[torch.where(real, starts[classes].unsqueeze(1) + places, 0)]
        radii[classes] = _mean_radius(at_least_float32(embeddings[rows]), real)
    return radii, values


@torch.no_grad()
def mean_inter_class_distance(embeddings: Tensor, labels: Tensor) -> float:
    """Average the L2 distances of all pairs of points of different classes; `embeddings` (N, D), `labels` (N,)."""
    total = torch.zeros((), dtype=torch.float64, device=embeddings.device)
    pairs = torch.zeros((), dtype=torch.int64, device=embeddings.device)
    rows = max(1, _BLOCK_ELEMENTS // max(len(embeddings), 1))
    for block, block_labels in zip(embeddings.split(rows), labels.split(rows), strict=True):
        different = block_labels.unsqueeze(1) != labels
        total += (pairwise_distances(block, embeddings) * different).sum(dtype=torch.float64)
        pairs += different.sum()
    if pairs == 0:
        raise ValueError("a distance between classes needs points of at least two classes")
    return float(total / pairs)


@torch.no_grad()
def mean_distance_within(groups: Tensor, normalise: Callable[[Tensor], Tensor] = leave_as_is) -> float:
    """Average the L2 distances of the pairs of points of the same group; `groups` (C, P, D) with P > 1.

    They are measured as `normalise` makes them, block by block: no copy of all groups is made.
    """
    count, size, dimensions = groups.shape
    total = torch.zeros((), dtype=torch.float64, device=groups.device)
    for block in groups.split(max(1, _BLOCK_ELEMENTS // (size * max(size, dimensions)))):
        points = normalise(block)
        total += pairwise_distances(points, points).sum(dtype=torch.float64)  # a point's distance to itself is 0
    return float(total / (count * size * (size - 1)))


def _mean_radius(points: Tensor, real: Tensor) -> Tensor:
    """Average (c,) the radii left by k = 1..n greedy centres of `points` (c, n, D), where `real` (c, n)."""
    every_class = torch.arange(len(points), device=points.device)
    sizes = real.sum(1)
    means = (points * real.unsqueeze(2)).sum(1) / sizes.unsqueeze(1)
    from_mean = torch.linalg.vector_norm(points - means.unsqueeze(1), dim=2)
    pick = from_mean.masked_fill(~real, torch.inf).argmin(dim=1)
    nearest = torch.zeros_like(from_mean).masked_fill(real, torch.inf)  # padding is covered from the start
    total = torch.zeros(len(points), dtype=torch.float64, device=points.device)
    for _ in range(points.shape[1] - 1):  # with all n as centres the radius is 0
        to_pick = torch.linalg.vector_norm(points - points[every_class, pick].unsqueeze(1), dim=2)
        nearest = torch.minimum(nearest, to_pick)
        radius, pick = nearest.max(dim=1)  # the farthest point is the radius, and the next centre
        total += radius
    return (total / sizes).to(points.dtype)


def _blocks_of_similar_size(sizes: Tensor, dimensions: int) -> list[Tensor]:
    """Divide class numbers, small classes first, into blocks of bounded padded size (classes x largest x D)."""
    order = sizes.argsort(stable=True)
    blocks, start = [], 0
    ascending = sizes[order].tolist()
    for stop in range(1, len(ascending) + 1):
        full = stop == len(ascending) or (stop + 1 - start) * ascending[stop] * dimensions > _BLOCK_ELEMENTS
        if full:
            blocks.append(order[start:stop])
            start = stop
    return blocks
