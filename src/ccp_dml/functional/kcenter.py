"""Greedy k-center (Algorithm 2) over many classes at once, and the covering radius it makes small."""

import torch
from torch import Tensor

from ccp_dml.errors import NonFiniteError
from ccp_dml.functional.distances import at_least_float32, for_device, pairwise_distances

# Numbers of the pool handled at a time: what stays in a processor's cache, and what keeps a GPU busy.
_BLOCK_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 26}
_TAKEN = -1.0  # below every distance, so that a position is never picked twice, not even among duplicates


@torch.no_grad()
def greedy_k_center(
    pool: Tensor,
    previous: Tensor | None,
    k: int,
    generator: torch.Generator | None = None,
    first: Tensor | None = None,
) -> Tensor:
    """Pick positions (C, k) in each class's pool, each the point that is farthest from all picked before.

    `pool` is (C, b, D). `previous` (C, p, D) counts as picked already. Without it, the first pick is drawn with
    `generator` (D5), unless `first` (C,) gives it, or is position 0 when there is neither. Of equally far points the
    lower position is taken.
    """
    if pool.dim() != 3:
        raise ValueError(f"pool must be (classes, points, dimensions), got shape {tuple(pool.shape)}")
    classes, points, dimensions = pool.shape
    if not 0 <= k <= points:
        raise ValueError(f"k must lie between 0 and the {points} points that the pool holds per class, got {k}")
    if previous is not None and (previous.dim() != 3 or previous.shape[::2] != (classes, dimensions)):
        raise ValueError(f"previous must be ({classes}, centres, {dimensions}), got shape {tuple(previous.shape)}")
    if previous is not None and previous.shape[1] == 0:
        previous = None
    for name, vectors in (("The pool holds", pool), ("The previous centres hold", previous)):
        if vectors is not None and not torch.isfinite(vectors).all():
            raise NonFiniteError(f"{name} NaN or infinity, which has no distance to anything.")
    if k == 0:
        return torch.empty(classes, 0, dtype=torch.int64, device=pool.device)
    firsts = None
    if previous is None:
        firsts = (first_picks(classes, points, generator) if first is None else first).to(pool.device)
    size = max(1, for_device(_BLOCK_ELEMENTS, pool.device) // max(1, points * dimensions))
    picks = [
        _picked(
            at_least_float32(pool[start : start + size]),
            None if previous is None else at_least_float32(previous[start : start + size]),
            None if firsts is None else firsts[start : start + size],
            k,
        )
        for start in range(0, classes, size)
    ]
    return torch.cat(picks) if picks else torch.empty(0, k, dtype=torch.int64, device=pool.device)


def _picked(pool: Tensor, previous: Tensor | None, first: Tensor | None, k: int) -> Tensor:
    """Pick positions (c, k) in pools (c, b, D), starting from `previous` centres (c, p, D) or a `first` pick (c,)."""
    every_class = torch.arange(len(pool), device=pool.device)
    picks = torch.empty(len(pool), k, dtype=torch.int64, device=pool.device)
    nearest = pool.new_full(pool.shape[:2], torch.inf) if previous is None else _to_nearest(pool, previous)
    for turn in range(k):
        pick = first if turn == 0 and first is not None else nearest.argmax(dim=1)
        picks[:, turn] = pick
        if turn == k - 1:
            break  # nobody asks how far the others are from the last
        to_pick = torch.linalg.vector_norm(pool - pool[every_class, pick].unsqueeze(1), dim=2)  # (c, b)
        nearest = torch.minimum(nearest, to_pick)
        nearest[every_class, pick] = _TAKEN
    return picks


def _to_nearest(points: Tensor, centres: Tensor) -> Tensor:
    """Measure the distance (C, n) of each of `points` (C, n, D) to the nearest of its class's `centres` (C, p, D)."""
    return pairwise_distances(points, centres).amin(dim=2)


@torch.no_grad()
def covering_radius(points: Tensor, centres: Tensor, mask: Tensor | None = None) -> Tensor:
    """Find the largest distance (C,) from a point of a class to the nearest centre of its class.

    `points` are (C, n, D), `centres` (C, p, D); `mask` (C, n) is True where a point is real, False where it is padding.
    A class without a real point has radius 0.
    """
    if centres.shape[1] == 0:
        raise ValueError("a covering radius needs at least one centre per class")
    if points.shape[1] == 0:
        return at_least_float32(points).new_zeros(len(points))
    nearest = _to_nearest(points, centres)
    if mask is not None:
        nearest = nearest.masked_fill(~mask, 0.0)
    return nearest.amax(dim=1)


def first_picks(classes: int, points: int, generator: torch.Generator | None) -> Tensor:
    """Draw the position (classes,) that each class begins with when nothing has been picked before."""
    if generator is None:
        return torch.zeros(classes, dtype=torch.int64, device="cpu")
    return torch.randint(points, (classes,), generator=generator, device=generator.device)
