"""Greedy k-center (Algorithm 2) over many classes at once, and the covering radius it makes small."""

import torch
from torch import Tensor

from ccp_dml.functional.distances import at_least_float32, pairwise_distances

_TAKEN = -1.0  # below every distance, so that a position is never picked twice, not even among duplicates


@torch.no_grad()
def greedy_k_center(pool: Tensor, previous: Tensor | None, k: int, generator: torch.Generator | None = None) -> Tensor:
    """Positions (C, k) in each class's pool, picked one after the other as the point farthest from all before.

    `pool` is (C, b, D). `previous` (C, p, D) counts as picked already. Without it, the first pick is drawn with
    `generator` (D5), or is position 0 when there is none. Of equally far points the lower position is taken.
    """
    if pool.dim() != 3:
        raise ValueError(f"pool must be (classes, points, dimensions), got shape {tuple(pool.shape)}")
    classes, points, _ = pool.shape
    if not 0 <= k <= points:
        raise ValueError(f"k must lie between 0 and the {points} points that the pool holds per class, got {k}")
    pool = at_least_float32(pool)
    picks = torch.empty(classes, k, dtype=torch.int64, device=pool.device)
    if k == 0:
        return picks

    every_class = torch.arange(classes, device=pool.device)
    if previous is not None and previous.shape[1] > 0:
        nearest = pairwise_distances(pool, at_least_float32(previous)).amin(dim=2)  # (C, b)
        pick = nearest.argmax(dim=1)
    else:
        nearest = pool.new_full((classes, points), torch.inf)
        pick = _first_pick(classes, points, generator).to(pool.device)
    for turn in range(k):
        if turn > 0:
            pick = nearest.argmax(dim=1)
        picks[:, turn] = pick
        to_pick = torch.linalg.vector_norm(pool - pool[every_class, pick].unsqueeze(1), dim=2)  # (C, b)
        nearest = torch.minimum(nearest, to_pick)
        nearest[every_class, pick] = _TAKEN
    return picks


@torch.no_grad()
def covering_radius(points: Tensor, centres: Tensor, mask: Tensor | None = None) -> Tensor:
    """Largest distance (C,) from a point of a class to the nearest centre of its class.

    `points` are (C, n, D), `centres` (C, p, D); `mask` (C, n) is True where a point is real, False where it is padding.
    A class without a real point has radius 0.
    """
    if centres.shape[1] == 0:
        raise ValueError("a covering radius needs at least one centre per class")
    nearest = pairwise_distances(points, centres).amin(dim=2)  # (C, n)
    if mask is not None:
        nearest = nearest.masked_fill(~mask, 0.0)
    return nearest.amax(dim=1)


def _first_pick(classes: int, points: int, generator: torch.Generator | None) -> Tensor:
    if generator is None:
        return torch.zeros(classes, dtype=torch.int64)
    return torch.randint(points, (classes,), generator=generator, device=generator.device)
