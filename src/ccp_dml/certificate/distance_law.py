"""Find how the distances of all pairs of a set are distributed, block by block of pairs: memory stays bounded."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

_BLOCK_PAIRS = 1 << 18  # what stays near a processor
_CELLS_PER_THRESHOLD = 16  # so that hardly two share a cell
_ROUNDING_NOISE = 1e-14  # of a squared distance, relative to the points' squared lengths
STEPS = 4000  # thresholds that are looked at, from zero to the largest distance


@dataclass
class DistanceLaw:
    """Weighted pairs of one kind, counted between thresholds; none until some are added.

    A same-class pair is on the wrong side of a threshold when it is as far or farther, a different-class pair when it
    is as close or closer; of a pair exactly at a threshold both are true, as in the chance constraint.
    """

    thresholds: Tensor  # (T,) ascending
    is_same_class: bool
    weights: Tensor = field(init=False)  # (T + 1,) of the pairs below, between and above the thresholds
    values: Tensor = field(init=False)  # (T + 1,) their distances on the constraint's scale, weighted and added up
    pairs: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.weights = torch.zeros(len(self.thresholds) + 1, dtype=torch.float64)
        self.values = torch.zeros_like(self.weights)

    def add(self, count: "_Count", weight: float) -> None:
        """Add the pairs of a `count`, each with the same `weight`."""
        self.weights += weight * count.pairs.double()
        self.values += weight * count.values
        self.pairs += int(count.pairs.sum())

    def wrong_rates(self) -> Tensor:
        """Compute the share (T,) of pairs on the wrong side of each threshold; NaN if there are no pairs."""
        wrong, total = self._wrong(self.weights)
        return wrong / total

    def wrong_rate(self, threshold: float) -> float | None:
        """Look up the share at one of the counted thresholds; None if there are no pairs."""
        return float(self.wrong_rates()[self._place(threshold)]) if self.pairs else None

    def mean_excess(self, margin: float, scaled: Callable[[Tensor], Tensor]) -> float | None:
        """Average the contrastive terms: how far pairs are beyond `margin`, zero if they are not.

        `scaled` is the scale that the values were added up on. `margin` must be one of the thresholds.
        """
        if not self.pairs:
            return None
        place = self._place(margin)
        (weights, total), (values, _) = self._wrong(self.weights), self._wrong(self.values)
        excess = float(values[place] - scaled(self.thresholds[place]) * weights[place])
        return max(0.0, excess if self.is_same_class else -excess) / float(total)

    def _wrong(self, amounts: Tensor) -> tuple[Tensor, Tensor]:
        """Add up the weight on the wrong side of each threshold (T,), and all weight.

        Always summed from the wrong end: the difference to the total would leave rounding where there is nothing.
        """
        if self.is_same_class:
            summed = amounts.flip(0).cumsum(0).flip(0)
            return summed[1:], summed[0]
        summed = amounts.cumsum(0)
        return summed[:-1], summed[-1]

    def _place(self, threshold: float) -> int:
        place = int(torch.searchsorted(self.thresholds, threshold))
        if place == len(self.thresholds) or float(self.thresholds[place]) != threshold:
            raise ValueError(f"pairs were not counted at the threshold {threshold}")
        return place


@dataclass(frozen=True)
class PairLaws:
    """The laws of a set's pairs, as an image and as a class counts.

    By images: two images drawn at random, given that they are of one class, or of two. (Precisely: of one class as
    `same_class_pairs` draws them.) By classes: one class, or two, drawn at random, and then their images.
    """

    same_by_images: DistanceLaw
    same_by_classes: DistanceLaw
    different_by_images: DistanceLaw
    different_by_classes: DistanceLaw


def threshold_grid(embeddings: Tensor, *also: float) -> Tensor:
    """Lay thresholds (T,) from zero to beyond the largest distance between `embeddings` (N, D), and `also` these."""
    centre = embeddings.mean(dim=0)
    reach = 2 * float(torch.linalg.vector_norm(embeddings - centre, dim=1).max()) * (1 + 1e-9)
    grid = torch.linspace(0.0, reach or 1.0, STEPS + 1, dtype=torch.float64)
    return torch.unique(torch.cat([grid, torch.tensor(also, dtype=torch.float64)]))


@torch.no_grad()
def pair_laws(
    embeddings: Tensor, labels: Tensor, thresholds: Tensor, scaled: Callable[[Tensor], Tensor] = torch.Tensor.clone
) -> PairLaws:
    """Count all pairs of `embeddings` (N, D) float64 with `labels` (N,) at `thresholds` (T,).

    What a pair weighs depends only on the sizes of the two classes. So pairs are counted size by size, and weighed
    afterwards.
    """
    laws = PairLaws(*(DistanceLaw(thresholds, is_same_class) for is_same_class in (True, True, False, False)))
    cells = _Cells(thresholds)
    groups = list(_by_class_size(embeddings, labels))
    for number, (size, points) in enumerate(groups):
        same, different = _count_within(points, size, cells, scaled)
        pairs_in_class = max(size * (size - 1) / 2, 1.0)
        laws.same_by_images.add(same, (size // 2) / pairs_in_class)
        laws.same_by_classes.add(same, 1 / pairs_in_class)
        laws.different_by_images.add(different, 1.0)
        laws.different_by_classes.add(different, 1 / size**2)
        for other_size, others in groups[number + 1 :]:
            different, turned = _Count(cells, scaled), _turned(others)
            for block in points.split(max(1, _BLOCK_PAIRS // len(others))):
                different.add(_distances(block, turned).flatten(), torch.gt)
            laws.different_by_images.add(different, 1.0)
            laws.different_by_classes.add(different, 1 / (size * other_size))
    return laws


def _by_class_size(embeddings: Tensor, labels: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield the sizes of classes, each with the embeddings (n, D) of all classes of that size, class after class."""
    _, classes, sizes = torch.unique(labels, return_inverse=True, return_counts=True)
    order = classes.argsort(stable=True)
    for size in torch.unique(sizes).tolist():
        yield size, _with_squares(embeddings[order[sizes[classes[order]] == size]])


def _with_squares(points: Tensor) -> Tensor:
    """Append half the squared length, negated, and 1 to `points` (n, D): one product then gives a distance.

    Lengths are shortened by more than rounding can add up to, so that the distance of equal points is 0.
    """
    halves = torch.linalg.vector_norm(points, dim=1, keepdim=True).square_().mul_(-0.5 * (1.0 - _ROUNDING_NOISE))
    return torch.cat([points, halves, torch.ones_like(halves)], dim=1)


def _turned(points: Tensor) -> Tensor:
    """Make the other side of a product of points (n, D + 2) with squares: last columns exchanged, all times -2."""
    return torch.cat([points[:, :-2], points[:, -1:], points[:, -2:-1]], dim=1).mul_(-2.0)


def _distances(points: Tensor, turned: Tensor) -> Tensor:
    """Compute distances (n, m) of points (n, D + 2) to `turned` ones (m, D + 2): d^2 = |a|^2 + |b|^2 - 2 ab."""
    return (points @ turned.T).clamp_(min=0.0).sqrt_()


def _count_within(
    points: Tensor, size: int, cells: "_Cells", scaled: Callable[[Tensor], Tensor]
) -> tuple["_Count", "_Count"]:
    """Count the pairs of one class and those of two among `points` (n, D), of which every `size` are a class."""
    same, different = _Count(cells, scaled), _Count(cells, scaled)
    classes, turned = torch.arange(len(points)) // size, _turned(points)
    for start, stop in _row_blocks(len(points)):
        edge = -(-stop // size) * size  # from this column on, no pair is of one class
        near = _distances(points[start:stop], turned[start:edge])  # (rows, columns)
        is_same = classes[start:stop, None] == classes[None, start:edge]
        upper = torch.ones_like(is_same).triu(1)  # every pair once
        same.add(near[is_same & upper], torch.ge)
        different.add(near[~is_same & upper], torch.gt)
        different.add(_distances(points[start:stop], turned[edge:]).flatten(), torch.gt)
    return same, different


class _Cells:
    """Find the place of many distances among the thresholds (T,), as a binary search would, but faster.

    Distances fall into cells of equal width, found by one multiplication. A table says how many thresholds lie in the
    cells before. The few thresholds in the same cell are compared one after the other. As multiplying and rounding
    down keep the order of numbers, this is exact.
    """

    def __init__(self, thresholds: Tensor) -> None:
        self.thresholds = torch.cat([thresholds, thresholds.new_tensor([torch.inf])])
        self.number = _CELLS_PER_THRESHOLD * len(thresholds)
        self.per_distance = self.number / (float(thresholds[-1]) or 1.0)
        own = torch.bincount(self._cells(thresholds), minlength=self.number + 1)  # thresholds in each cell
        self.before = (own.cumsum(0) - own).int()
        self.most = int(own.max())

    def _cells(self, distances: Tensor) -> Tensor:
        return (distances * self.per_distance).clamp_(max=self.number).int()

    def places(self, distances: Tensor, beyond: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Count the thresholds that each of `distances` (n,) is beyond, which is `torch.gt` or `torch.ge`."""
        places = self.before.index_select(0, self._cells(distances))
        for _ in range(self.most):
            places += beyond(distances, self.thresholds.index_select(0, places))
        return places


class _Count:
    """Pairs between thresholds, counted one by one, and the sum of their distances on the constraint's scale."""

    def __init__(self, cells: _Cells, scaled: Callable[[Tensor], Tensor]) -> None:
        self.cells, self.scaled = cells, scaled
        self.pairs = torch.zeros(len(cells.thresholds), dtype=torch.int64)  # (T + 1,)
        self.values = torch.zeros(len(cells.thresholds), dtype=torch.float64)

    def add(self, distances: Tensor, beyond: Callable[[Tensor, Tensor], Tensor]) -> None:
        places = self.cells.places(distances, beyond)
        self.pairs += torch.bincount(places, minlength=len(self.pairs))
        self.values.index_add_(0, places, self.scaled(distances))


def _row_blocks(rows: int) -> Iterator[tuple[int, int]]:
    """Yield where blocks of rows start and stop, each small enough to be compared with all rows from its start on."""
    start = 0
    while start < rows:
        stop = min(rows, start + max(1, _BLOCK_PAIRS // (rows - start)))
        yield start, stop
        start = stop
