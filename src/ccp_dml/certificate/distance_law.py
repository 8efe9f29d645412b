"""How the distances of all pairs of a set are distributed, by passing over blocks of pairs: memory stays bounded."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ccp_dml.functional.distances import pairwise_distances

_BLOCK_PAIRS = 1 << 18  # what stays near a processor
STEPS = 4000  # thresholds that are looked at, from zero to the largest distance


@dataclass(frozen=True)
class DistanceLaw:
    """Weighted pairs of one kind, counted between thresholds.

    A same-class pair is on the wrong side of a threshold when it is as far or farther, a different-class pair when it
    is as close or closer; of a pair exactly at a threshold both are true, as in the chance constraint.
    """

    thresholds: Tensor  # (T,) ascending
    is_same_class: bool
    weights: Tensor  # (T + 1,) of the pairs below, between and above the thresholds
    values: Tensor  # (T + 1,) their distances on the constraint's scale, weighted and added up
    pairs: int

    def wrong_rates(self) -> Tensor:
        """The share (T,) of pairs on the wrong side of each threshold; NaN where there are no pairs."""
        wrong, total = self._wrong(self.weights)
        return wrong / total

    def wrong_rate(self, threshold: float) -> float | None:
        """The same at one threshold, which must be one of those counted at; None where there are no pairs."""
        return float(self.wrong_rates()[self._place(threshold)]) if self.pairs else None

    def mean_excess(self, margin: float, scaled: Callable[[Tensor], Tensor]) -> float | None:
        """The mean of the contrastive terms, how far pairs are beyond `margin`, zero if they are not.

        `scaled` is the scale that the values were added up on. `margin` must be one of the thresholds.
        """
        if not self.pairs:
            return None
        place = self._place(margin)
        (weights, total), (values, _) = self._wrong(self.weights), self._wrong(self.values)
        excess = float(values[place] - scaled(self.thresholds[place]) * weights[place])
        return max(0.0, excess if self.is_same_class else -excess) / float(total)

    def _wrong(self, amounts: Tensor) -> tuple[Tensor, Tensor]:
        """What is on the wrong side of each threshold (T,), and all there is.

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
    """Thresholds (T,) from zero to beyond the largest distance between `embeddings` (N, D), and `also` these."""
    centre = embeddings.mean(dim=0)
    reach = 2 * float(torch.linalg.vector_norm(embeddings - centre, dim=1).max()) * (1 + 1e-9)
    grid = torch.linspace(0.0, reach or 1.0, STEPS + 1, dtype=torch.float64)
    return torch.unique(torch.cat([grid, torch.tensor(also, dtype=torch.float64)]))


@torch.no_grad()
def pair_laws(
    embeddings: Tensor, labels: Tensor, thresholds: Tensor, scaled: Callable[[Tensor], Tensor] = torch.Tensor.clone
) -> PairLaws:
    """The laws of all pairs of `embeddings` (N, D) float64 with `labels` (N,), counted at `thresholds` (T,)."""
    _, classes, sizes = torch.unique(labels, return_inverse=True, return_counts=True)
    size = sizes[classes].double()  # (N,), of each image's class
    pairs_in_class = (size * (size - 1) / 2).clamp(min=1)
    same_by_images, same_by_classes, different_by_images, different_by_classes = (
        _Tally(thresholds, is_same_class, scaled) for is_same_class in (True, True, False, False)
    )
    for start, stop in _row_blocks(len(embeddings)):
        distances = pairwise_distances(embeddings[start:stop], embeddings[start:])  # (rows, columns)
        is_same = classes[start:stop, None] == classes[None, start:]
        upper = torch.ones_like(is_same).triu(1)  # every pair once

        rows, columns = (is_same & upper).nonzero(as_tuple=True)
        near = distances[rows, columns]
        places = torch.searchsorted(thresholds, near, right=True)  # thresholds up to the distance
        same_by_images.add(near, places, ((size / 2).floor() / pairs_in_class)[rows + start], len(near))
        same_by_classes.add(near, places, (1 / pairs_in_class)[rows + start], len(near))

        different = (~is_same & upper).double()
        count = int(different.sum())
        places = torch.searchsorted(thresholds, distances)  # thresholds below the distance
        different_by_images.add(distances, places, different, count)
        different_by_classes.add(distances, places, different.div_(size[start:stop, None]).div_(size[start:]), count)
    return PairLaws(same_by_images.law(), same_by_classes.law(), different_by_images.law(), different_by_classes.law())


class _Tally:
    """A law while its pairs are being counted."""

    def __init__(self, thresholds: Tensor, is_same_class: bool, scaled: Callable[[Tensor], Tensor]) -> None:
        self.thresholds, self.is_same_class, self.scaled = thresholds, is_same_class, scaled
        self.weights = torch.zeros(len(thresholds) + 1, dtype=torch.float64)
        self.values = torch.zeros_like(self.weights)
        self.pairs = 0

    def add(self, distances: Tensor, places: Tensor, weights: Tensor, count: int) -> None:
        """`count` pairs; whatever else the tensors, which are of one shape, hold has weight zero."""
        places, cells = places.flatten(), len(self.weights)
        self.weights += torch.bincount(places, weights.flatten(), minlength=cells)
        self.values += torch.bincount(places, (weights * self.scaled(distances)).flatten(), minlength=cells)
        self.pairs += count

    def law(self) -> DistanceLaw:
        return DistanceLaw(self.thresholds, self.is_same_class, self.weights, self.values, self.pairs)


def _row_blocks(rows: int) -> Iterator[tuple[int, int]]:
    """Where blocks of rows start and stop, each small enough to be compared with all rows from its start on."""
    start = 0
    while start < rows:
        stop = min(rows, start + max(1, _BLOCK_PAIRS // (rows - start)))
        yield start, stop
        start = stop
