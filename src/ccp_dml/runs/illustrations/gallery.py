"""Choose a few test queries and describe them with their nearest neighbours, as JSON that needs no other file.

Training writes it into the run's folder while data and network are at hand; the report then needs neither.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ccp_dml.data.labelled import TestSet
from ccp_dml.foundation.randomness import generator
from ccp_dml.functional.retrieval import nearest_references
from ccp_dml.runs.illustrations.pictures import item_card

CANDIDATES = 2000  # queries among which the worst and the best are sought: plenty to look at, and quick on any data set
DEPTH = 1000  # of the neighbours that count for a query's average precision; larger classes are cut here


def build_gallery(
    test: TestSet,
    embeddings: Tensor,
    ref_embeddings: Tensor | None = None,
    queries: int = 12,
    neighbours: int = 8,
    seed: int = 0,
) -> dict[str, Any]:
    """Choose queries and show their neighbours: half are the worst, a sixth the best, the rest drawn at random.

    The random ones depend on `seed` and the test set alone, never on the network, so that runs with the same seed show
    the same queries and can be read side by side.

    Args:
        test: the test set that was embedded; queries and gallery number their classes alike.
        embeddings: (N, D), one per query of `test`.
        ref_embeddings: (M, D), one per gallery item of `test`; None where the queries are their own gallery.
        queries: how many queries to show; fewer where the test set has fewer with a true reference.
        neighbours: how many neighbours to show of each.
        seed: of the random choice.
    """
    references = test.gallery or test.queries
    candidates = _candidates(test, seed)
    relevant = true_references(test)[candidates]  # (Q,)
    wanted = max([neighbours, *relevant.clamp(max=DEPTH).tolist()])
    depth = min(wanted, len(references) - (test.gallery is None))
    distances, indices = nearest_to_rows(embeddings, ref_embeddings, candidates, depth)  # (Q, depth) each
    hits = references.labels[indices] == test.queries.labels[candidates][:, None]
    precision = average_precision(hits, relevant)

    chosen = _choose(precision, test.queries.labels[candidates], queries)
    return {
        "seed": seed,
        "candidates": len(candidates),
        "queries": [
            {
                **item_card(test.queries, int(candidates[q])),
                "chosen": reason,
                "average_precision": round(float(precision[q]), 6),
                "relevant": int(relevant[q]),
                "neighbours": [
                    {
                        **item_card(references, int(indices[q, rank])),
                        "right": bool(hits[q, rank]),
                        "distance": round(float(distances[q, rank]), 6),
                    }
                    for rank in range(min(neighbours, depth))
                ],
            }
            for q, reason in chosen
        ],
    }


def average_precision(hits: Tensor, relevant: Tensor) -> Tensor:
    """Compute AP@R (Q,) of each query from hits (Q, K), nearest first, and the number of true references (Q,).

    R is the number of true references, or K where there are more.
    """
    rank = torch.arange(1, hits.shape[1] + 1)  # (K,)
    counted = relevant.clamp(max=hits.shape[1])[:, None]  # (Q, 1)
    hits_within_r = hits & (rank <= counted)
    precision_at = hits_within_r.cumsum(dim=1) / rank
    return (precision_at * hits_within_r).sum(dim=1) / counted.squeeze(1)


def _candidates(test: TestSet, seed: int) -> Tensor:
    """Draw rows of queries that have a true reference (Q,), in an order that `seed` alone decides."""
    rows = torch.randperm(len(test.queries), generator=generator(seed, "gallery"))
    return rows[true_references(test)[rows] > 0][:CANDIDATES]


def _choose(precision: Tensor, labels: Tensor, count: int) -> list[tuple[int, str]]:
    """Choose places among the candidates, each with the reason: worst, then best, then random; of many classes."""
    worst, best = count // 2, count // 6
    taken: set[int] = set()

    def take(order: Iterable[int], wanted: int, reason: str) -> list[tuple[int, str]]:
        picked: list[int] = []
        places = [place for place in order if place not in taken]
        seen_classes: set[int] = set()
        for place in places:  # one query per class as long as there are classes
            if len(picked) < wanted and int(labels[place]) not in seen_classes:
                picked.append(place)
                seen_classes.add(int(labels[place]))
        picked += [place for place in places if place not in picked][: wanted - len(picked)]
        taken.update(picked)
        return [(place, reason) for place in picked]

    # The random ones are drawn first: were they drawn from what the worst leave over, they would differ between runs.
    at_random = take(range(len(labels)), count - worst - best, "random")
    ascending = precision.sort(stable=True).indices.tolist()
    return take(ascending, worst, "worst") + take(reversed(ascending), best, "best") + at_random


def true_references(test: TestSet) -> Tensor:
    """Count the true references of each query (N,); an item is no reference of itself."""
    if test.gallery is None:
        return torch.bincount(test.queries.labels)[test.queries.labels] - 1
    return torch.bincount(test.gallery.labels, minlength=len(test.queries.class_names))[test.queries.labels]


def nearest_to_rows(
    embeddings: Tensor, ref_embeddings: Tensor | None, rows: Tensor, depth: int
) -> tuple[Tensor, Tensor]:
    """Find the references nearest to the queries at `rows` (Q,): distances and indices (Q, depth), on the CPU."""
    if len(rows) == 0:
        return torch.empty(0, depth), torch.empty(0, depth, dtype=torch.int64)
    at = embeddings[rows.to(embeddings.device)]
    if ref_embeddings is not None:
        distances, indices = nearest_references(at, depth, ref_embeddings.to(at.device))
        return distances.cpu(), indices.cpu()
    distances, indices = (part.cpu() for part in nearest_references(at, depth + 1, embeddings))
    # A query is found in its own gallery. It is left out by index (D24); where duplicates crowd it out, the last goes.
    is_self = indices == rows[:, None]
    is_self[:, -1] |= ~is_self.any(dim=1)
    return distances[~is_self].view(-1, depth), indices[~is_self].view(-1, depth)
