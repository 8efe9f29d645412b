"""Greedy k-center for all classes at once against class by class, and the certificate's count against a binary search.

Picks and counts must be the same. The rest of a reselection is embedding the pool: in large batches, without gradients,
loaded ahead by the loader processes. Embeddings of the last evaluation cannot take its place: a pool holds images of
classes that train, an evaluation those of classes that do not.
"""

import torch
from side_by_side import Claim, compare, main
from torch import Tensor

from ccp_dml.certificate.distance_law import pair_laws, threshold_grid
from ccp_dml.functional.distances import pairwise_distances
from ccp_dml.functional.kcenter import greedy_k_center

GOAL = 4


def class_by_class(pool: Tensor, previous: Tensor, k: int) -> Tensor:
    return torch.cat([greedy_k_center(pool[c : c + 1], previous[c : c + 1], k) for c in range(len(pool))])


def k_center_claims(classes: int, repeats: int) -> list[Claim]:
    """SOP's reselection: a pool of 7 per class, 4 proxies."""
    generator = torch.Generator().manual_seed(0)
    pool, previous = (torch.randn(classes, points, 128, generator=generator) for points in (7, 4))
    assert torch.equal(greedy_k_center(pool, previous, 4), class_by_class(pool, previous, 4))
    pairs = compare(lambda: greedy_k_center(pool, previous, 4), lambda: class_by_class(pool, previous, 4), repeats)
    case = f"{classes:,} classes, pool 7, 4 proxies"
    seconds = [(0.1, ours) for ours, _ in pairs]
    note = "Embedding the pool takes minutes at this size. Other work on the machine decides about some milliseconds."
    return [
        Claim("Greedy k-center", case, pairs, theirs="class by class"),
        Claim(
            "Greedy k-center", case, seconds, "a tenth of a second", "seconds of a processor", at_most=1.0, note=note
        ),
    ]


def by_binary_search(points: Tensor, labels: Tensor, thresholds: Tensor) -> Tensor:
    """Different-class pairs between thresholds, by a binary search for each."""
    counts = torch.zeros(len(thresholds) + 1, dtype=torch.int64)
    for start in range(0, len(points), 64):
        distances = pairwise_distances(points[start : start + 64], points[start:])
        different = (labels[start : start + 64, None] != labels[start:]).triu(1)
        counts += torch.bincount(torch.searchsorted(thresholds, distances[different]), minlength=len(counts))
    return counts


def certificate_claim(images: int, repeats: int) -> Claim:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(images) // 5
    points = torch.nn.functional.normalize(torch.randn(images, 128, generator=generator, dtype=torch.float64))
    grid = threshold_grid(points, 0.5)
    counted = pair_laws(points, labels, grid).different_by_images.weights
    assert torch.equal(counted.long(), by_binary_search(points, labels, grid))
    pairs = compare(lambda: pair_laws(points, labels, grid), lambda: by_binary_search(points, labels, grid), repeats)
    case = f"{images:,} images, all pairs, four laws against one"
    return Claim("Certificate", case, pairs, theirs="binary search", at_least=3.0)


def measure(quick: bool) -> list[Claim]:
    repeats = 3 if quick else 5
    return [*k_center_claims(500 if quick else 8_489, repeats), certificate_claim(1_000 if quick else 4_000, repeats)]


if __name__ == "__main__":
    main(__doc__, measure)
