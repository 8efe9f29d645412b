"""Exact retrieval: nearest references and the scores P@1, R@k, P@R and MAP@R (specification, section 4)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ccp_dml.functional.distances import pairwise_squared_distances

# Pairs of query and reference held at a time. Each needs some 30 bytes: small blocks stay in a processor's cache, a GPU
# wants large ones.
_BLOCK_PAIRS_CPU = 1 << 20
_BLOCK_PAIRS_GPU = 1 << 26
_SMALLEST_BLOCK = 128  # queries: with fewer, passing over the references again and again would cost more than ranking
_INDEX_BITS = (1 << 29) - 1


@dataclass(frozen=True)
class RetrievalScores:
    """Means over queries, as fractions (0..1)."""

    map_at_r: float  # MAP@R
    precision_at_1: float  # P@1
    r_precision: float  # P@R
    recall_at: dict[int, float]  # k -> R@k, the share of queries with a hit among the k nearest
    queries: int  # how many the means are over
    skipped: int  # queries without any true reference, left out of the means (D25)


@torch.no_grad()
def retrieval_scores(
    embeddings: Tensor,
    labels: Tensor,
    ref_embeddings: Tensor | None = None,
    ref_labels: Tensor | None = None,
    k: Sequence[int] = (1,),
    block: int | None = None,
) -> RetrievalScores:
    """Scores of `embeddings` (N, D), `labels` (N,) as queries against `ref_embeddings` (M, D), `ref_labels` (M,).

    Without references every item queries all the others: itself is excluded by its index (D24). Neighbours are ranked
    by L2 distance, equals by lower index. `block` is the number of queries handled at a time; by default it follows
    from a memory budget. A `k` beyond the number of references looks at all of them.
    """
    own = ref_embeddings is None
    if (ref_embeddings is None) != (ref_labels is None):
        raise ValueError("ref_embeddings and ref_labels belong together: give both or neither")
    if any(at < 1 for at in k):
        raise ValueError(f"every k must be at least 1, got {tuple(k)}")
    references = embeddings if ref_embeddings is None else ref_embeddings
    ref_labels = labels if ref_labels is None else ref_labels
    for name, vectors, their_labels in (("", embeddings, labels), ("ref_", references, ref_labels)):
        if their_labels.shape != vectors.shape[:1]:
            raise ValueError(
                f"{name}labels must be one per row of {name}embeddings, "
                f"got shapes {tuple(their_labels.shape)} and {tuple(vectors.shape)}"
            )
    _check_vectors(embeddings, references)

    labels, ref_labels = labels.to(embeddings.device), ref_labels.to(embeddings.device)
    classes, query_class, ref_class = _renumbered(labels, ref_labels)
    true_references = torch.bincount(ref_class, minlength=classes)[query_class] - int(own)  # (N,), R_i of the metrics
    # Queries with equally many true references share a block, because a block looks as deep as its neediest query.
    order = true_references.argsort(stable=True)
    order = order[true_references[order] > 0]
    if len(order) == 0:
        raise ValueError(
            "no query has a true reference: every class has a single member, or is missing from the gallery"
        )

    deepest_k = max(k, default=1)
    sums = torch.zeros(3 + len(k), dtype=torch.float64, device=embeddings.device)
    available = len(references) - int(own)
    for queries in order.split(block or _block_size(embeddings, references)):
        wanted = true_references[queries]
        depth = min(max(int(wanted.max()), deepest_k), available)
        _, nearest = _nearest(embeddings[queries], references, depth, queries if own else None)
        hits = ref_class[nearest] == query_class[queries].unsqueeze(1)  # (Q, depth)
        sums += _score_sums(hits, wanted, k)
    means = (sums / len(order)).tolist()
    return RetrievalScores(
        map_at_r=means[0],
        r_precision=means[1],
        precision_at_1=means[2],
        recall_at=dict(zip(k, means[3:], strict=True)),
        queries=len(order),
        skipped=len(embeddings) - len(order),
    )


@torch.no_grad()
def nearest_references(
    embeddings: Tensor, k: int, ref_embeddings: Tensor | None = None, block: int | None = None
) -> tuple[Tensor, Tensor]:
    """Distances (N, k) and indices (N, k) of the `k` nearest of `ref_embeddings` (M, D) to each of `embeddings` (N, D).

    Without references each item looks among all the others. Nearest first, equals by lower index.
    """
    own = ref_embeddings is None
    references = embeddings if ref_embeddings is None else ref_embeddings
    _check_vectors(embeddings, references)
    available = len(references) - int(own)
    if not 1 <= k <= available:
        raise ValueError(f"k must lie between 1 and the {available} references there are, got {k}")
    positions = torch.arange(len(embeddings), device=embeddings.device)
    blocks = [
        _nearest(embeddings[queries], references, k, queries if own else None)
        for queries in positions.split(block or _block_size(embeddings, references))
    ]
    return torch.cat([distances for distances, _ in blocks]), torch.cat([indices for _, indices in blocks])


def _nearest(queries: Tensor, references: Tensor, k: int, own: Tensor | None) -> tuple[Tensor, Tensor]:
    """Distances and indices (Q, k) of the nearest references; `own` (Q,) are the queries' places among them, if any.

    Squared distances are computed in float64 and compared as float32: duplicates, which a matrix product may put a last
    bit apart, tie exactly. A float32 leaves the low 29 bits of a float64 empty: the index goes there. The bits of
    non-negative numbers are ordered as the numbers are, so that one selection of integers ranks by distance and index.
    """
    squared = pairwise_squared_distances(queries, references).float()  # (Q, M)
    keys = squared.double().view(torch.int64).bitwise_or_(torch.arange(len(references), device=squared.device))
    if own is not None:
        keys.scatter_(1, own.unsqueeze(1), torch.iinfo(torch.int64).max)
    best = keys.topk(k, dim=1, largest=False).values
    return (best & ~_INDEX_BITS).view(torch.float64).sqrt().float(), best & _INDEX_BITS


def _score_sums(hits: Tensor, wanted: Tensor, k: Sequence[int]) -> Tensor:
    """Sums over a block's queries of MAP@R, P@R, P@1 and each R@k, from `hits` (Q, depth) and R_i = `wanted` (Q,)."""
    ranks = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    hits_in_r = hits & (ranks <= wanted.unsqueeze(1))
    precision_at_rank = hits_in_r.cumsum(1).double() / ranks
    average_precision = (precision_at_rank * hits_in_r).sum(1) / wanted
    r_precision = hits_in_r.sum(1).double() / wanted
    per_query = [average_precision, r_precision, hits[:, 0].double()]
    per_query += [hits[:, :at].any(dim=1).double() for at in k]
    return torch.stack(per_query).sum(1)


def _renumbered(labels: Tensor, ref_labels: Tensor) -> tuple[int, Tensor, Tensor]:
    """Labels of any value as 0, 1, ..., with their number: counting by class needs small numbers."""
    values, numbers = torch.unique(torch.cat([labels, ref_labels]), return_inverse=True)
    return len(values), numbers[: len(labels)], numbers[len(labels) :]


def _check_vectors(embeddings: Tensor, references: Tensor) -> None:
    for name, vectors in (("embeddings", embeddings), ("ref_embeddings", references)):
        if vectors.dim() != 2 or len(vectors) == 0:
            raise ValueError(f"{name} must be (rows, dimensions) with at least one row, got {tuple(vectors.shape)}")
        if len(vectors) > _INDEX_BITS:
            raise ValueError(f"{name} hold {len(vectors)} rows; exact retrieval ranks up to {_INDEX_BITS}")
        if not torch.isfinite(vectors).all():
            raise ValueError(f"{name} hold NaN or infinity, which cannot be ranked")
    if embeddings.shape[1] != references.shape[1]:
        raise ValueError(f"embeddings have {embeddings.shape[1]} dimensions, ref_embeddings {references.shape[1]}")


def _block_size(embeddings: Tensor, references: Tensor) -> int:
    pairs = _BLOCK_PAIRS_CPU if embeddings.device.type == "cpu" else _BLOCK_PAIRS_GPU
    return max(_SMALLEST_BLOCK, pairs // len(references))
