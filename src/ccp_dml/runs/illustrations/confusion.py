"""Find the classes that a network takes for each other: whose images stand among a query's nearest.

Training writes it into the run's folder beside the gallery, while the test images are at hand.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ccp_dml.data.labelled import TestSet
from ccp_dml.foundation.randomness import generator
from ccp_dml.runs.illustrations.gallery import nearest_to_rows, true_references
from ccp_dml.runs.illustrations.pictures import item_card

MOST_QUERIES = 10_000  # of larger test sets a part, drawn once: its shares differ little from the whole's
DEPTH = 100  # neighbours looked at; of classes with more images the nearest ones
PAIRS = 10  # of classes, in the table
CLASSES = 12  # in the heat map


@dataclass(frozen=True)
class Confusion:
    """From which classes the neighbours of each class come. Sparse: most of the C x C pairs never occur."""

    sources: Tensor  # (K,) classes of queries
    targets: Tensor  # (K,) classes of their neighbours
    shares: Tensor  # (K,) mean over the class's queries of the share of their R nearest that is of the target
    queries: Tensor  # (K,) the query that came nearest to the target,
    references: Tensor  # (K,) and the reference that it came nearest to
    distances: Tensor  # (K,) between the two

    def share(self, source: int, target: int) -> float:
        """Look up which share of the neighbours of `source` is of `target`."""
        found = (self.sources == source) & (self.targets == target)
        return float(self.shares[found].sum())


def build_confusion(test: TestSet, embeddings: Tensor, ref_embeddings: Tensor | None = None) -> dict[str, Any]:
    """Describe the pairs of classes that are confused most, and a matrix of these classes, as JSON.

    Args:
        test: the test set that was embedded; queries and gallery number their classes alike.
        embeddings: (N, D), one per query of `test`.
        ref_embeddings: (M, D), one per gallery item of `test`; None where the queries are their own gallery.
    """
    found = confusion(test, embeddings, ref_embeddings)
    references = test.gallery or test.queries
    names = test.queries.class_names
    pairs = worst_pairs(found, len(names))
    classes = list(dict.fromkeys(label for source, target, _ in pairs for label in (source, target)))[:CLASSES]
    return {
        "classes": [names[label] for label in classes],
        "matrix": [[round(found.share(row, column), 4) for column in classes] for row in classes],
        "pairs": [
            {
                "shares": [round(found.share(source, target), 4), round(found.share(target, source), 4)],
                "distance": round(float(found.distances[place]), 6),
                "items": [
                    item_card(test.queries, int(found.queries[place])),
                    item_card(references, int(found.references[place])),
                ],
            }
            for source, target, place in pairs
        ],
    }


@torch.no_grad()
def confusion(test: TestSet, embeddings: Tensor, ref_embeddings: Tensor | None = None) -> Confusion:
    """Count over queries whose images stand among the R nearest; R is the number of a query's true references."""
    references = test.gallery or test.queries
    classes = len(test.queries.class_names)
    relevant = true_references(test)  # (N,)
    rows = torch.randperm(len(test.queries), generator=generator(0, "confusion"))
    rows = rows[relevant[rows] > 0][:MOST_QUERIES]
    depth = min(int(relevant.max()), DEPTH)
    distances, indices = nearest_to_rows(embeddings, ref_embeddings, rows, depth)  # (Q, depth)
    wanted = relevant[rows].clamp(max=depth).unsqueeze(1)  # (Q, 1)
    counted = torch.arange(depth) < wanted  # (Q, depth), n of them

    source = test.queries.labels[rows].unsqueeze(1).expand_as(indices)[counted]  # (n,)
    target = references.labels[indices][counted]
    weight = (1 / wanted.double()).expand_as(indices)[counted]
    pairs, places, sizes = torch.unique(source * classes + target, return_inverse=True, return_counts=True)
    shares = torch.zeros(len(pairs), dtype=torch.float64).index_add_(0, places, weight)
    shares /= torch.bincount(test.queries.labels[rows], minlength=classes)[pairs // classes]
    near_to_far = distances[counted].argsort(stable=True)
    by_pair = near_to_far[places[near_to_far].argsort(stable=True)]
    closest = by_pair[sizes.cumsum(0) - sizes]  # (K,) the first of each pair
    return Confusion(
        sources=pairs // classes,
        targets=pairs % classes,
        shares=shares,
        queries=rows.unsqueeze(1).expand_as(indices)[counted][closest],
        references=indices[counted][closest],
        distances=distances[counted][closest],
    )


def worst_pairs(found: Confusion, classes: int) -> list[tuple[int, int, int]]:
    """Rank pairs of classes by how often they are confused: both classes, and the pair's place in `found`.

    Each pair of classes once, in the direction in which it is confused more; ranked by both directions together.
    """
    different = (found.sources != found.targets).nonzero().squeeze(1)
    sources, targets, shares = found.sources[different], found.targets[different], found.shares[different]
    unordered = torch.minimum(sources, targets) * classes + torch.maximum(sources, targets)
    _, places = torch.unique(unordered, return_inverse=True)
    both = torch.zeros(len(different), dtype=torch.float64).index_add_(0, places, shares)[places]
    order = shares.argsort(descending=True, stable=True)
    order = order[both[order].argsort(descending=True, stable=True)]
    pairs: dict[int, tuple[int, int, int]] = {}
    for index in order[: 2 * PAIRS].tolist():  # a pair has two directions at most
        pairs.setdefault(int(places[index]), (int(sources[index]), int(targets[index]), int(different[index])))
    return list(pairs.values())[:PAIRS]
