"""Exact retrieval: nearest references and the scores P@1, R@k, P@R and MAP@R (docs/glossary.md defines them)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ccp_dml.errors import no_tensor
from ccp_dml.functional.neighbours import MOST_REFERENCES, ExactSearch


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
    progress: Callable[[int, int], None] | None = None,
    part: Callable[[int], slice] | None = None,
    join: Callable[[Tensor], Tensor] | None = None,
) -> RetrievalScores:
    """Score `embeddings` (N, D), `labels` (N,) as queries against `ref_embeddings` (M, D), `ref_labels` (M,).

    Without references every item queries all the others: itself is excluded by its index (D24). Neighbours are ranked
    by L2 distance, equals by lower index, exactly (see `functional.neighbours` for what that means). A `k` beyond the
    number of references looks at all of them. All embeddings must be on one device; labels may be on any.

    Beside its arguments this needs the references once more in float32, and some 200 MB. `block` is the number of
    queries handled at a time; by default it follows from that budget. `progress` is called with the number of queries
    done and of all.

    Several processes with the same arguments can divide the queries: `part` gives a process its range of so many
    queries, and `join` puts the scores of all ranges (n, scores) one after the other, in float64.
    """
    own = ref_embeddings is None
    if (ref_embeddings is None) != (ref_labels is None):
        raise ValueError("ref_embeddings and ref_labels belong together: give both or neither")
    if not isinstance(k, Sequence):
        raise ValueError(f"k must be a sequence such as (1, 10), got {k!r}")
    if any(at < 1 for at in k):
        raise ValueError(f"every k must be at least 1, got {tuple(k)}")
    references = embeddings if ref_embeddings is None else ref_embeddings
    ref_labels = labels if ref_labels is None else ref_labels
    named = {"embeddings": embeddings, "labels": labels, "ref_embeddings": references, "ref_labels": ref_labels}
    for name, value in named.items():
        if not isinstance(value, Tensor):
            raise ValueError(no_tensor(name, value))
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

    search = ExactSearch(embeddings, None if own else references)
    depths = true_references[order].clamp(min=max(k, default=1)).clamp_(max=search.available)
    order, depths = (order, depths) if part is None else (order[part(len(order))], depths[part(len(order))])
    scores = torch.zeros(len(embeddings), 3 + len(k), dtype=torch.float64, device=embeddings.device)
    done = 0
    for queries, _, nearest in search.nearest(order, depths, block) if len(order) else ():
        hits = ref_class[nearest] == query_class[queries].unsqueeze(1)  # (Q, depth)
        scores[queries] = _scores(hits, true_references[queries], k)
        done += len(queries)
        if progress is not None:
            progress(done, len(order))
    scores = scores[order] if join is None else join(scores[order])
    means = scores.mean(dim=0).tolist()
    return RetrievalScores(
        map_at_r=means[0],
        r_precision=means[1],
        precision_at_1=means[2],
        recall_at=dict(zip(k, means[3:], strict=True)),
        queries=len(scores),
        skipped=len(embeddings) - len(scores),
    )


@torch.no_grad()
def nearest_references(
    embeddings: Tensor, k: int, ref_embeddings: Tensor | None = None, block: int | None = None
) -> tuple[Tensor, Tensor]:
    """Find the `k` nearest of `ref_embeddings` (M, D) to each of `embeddings` (N, D): distances, indices (N, k) each.

    Without references each item looks among all the others. Nearest first, equals by lower index, exactly (see
    `functional.neighbours` for what that means). Memory is that of `retrieval_scores`.
    """
    own = ref_embeddings is None
    references = embeddings if ref_embeddings is None else ref_embeddings
    _check_vectors(embeddings, references)
    search = ExactSearch(embeddings, None if own else references)
    if not 1 <= k <= search.available:
        raise ValueError(f"k must lie between 1 and the {search.available} references there are, got {k}")
    distances = torch.empty(len(embeddings), k, dtype=torch.float32, device=embeddings.device)
    indices = torch.empty(len(embeddings), k, dtype=torch.int64, device=embeddings.device)
    rows = torch.arange(len(embeddings), device=embeddings.device)
    for queries, their_distances, nearest in search.nearest(rows, torch.full_like(rows, k), block):
        distances[queries], indices[queries] = their_distances.float(), nearest
    return distances, indices


def _scores(hits: Tensor, wanted: Tensor, k: Sequence[int]) -> Tensor:
    """Score queries (Q, 3 + len(k)) by MAP@R, P@R, P@1 and each R@k, from `hits` (Q, depth) and R_i = `wanted` (Q,)."""
    ranks = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    hits_in_r = hits & (ranks <= wanted.unsqueeze(1))
    precision_at_rank = hits_in_r.cumsum(1).double() / ranks
    average_precision = (precision_at_rank * hits_in_r).sum(1) / wanted
    r_precision = hits_in_r.sum(1).double() / wanted
    per_query = [average_precision, r_precision, hits[:, 0].double()]
    per_query += [hits[:, :at].any(dim=1).double() for at in k]
    return torch.stack(per_query, dim=1)


def _renumbered(labels: Tensor, ref_labels: Tensor) -> tuple[int, Tensor, Tensor]:
    """Renumber labels of any value as 0, 1, ..., and count them: counting by class needs small numbers."""
    values, numbers = torch.unique(torch.cat([labels, ref_labels]), return_inverse=True)
    return len(values), numbers[: len(labels)], numbers[len(labels) :]


def _check_vectors(embeddings: Tensor, references: Tensor) -> None:
    if embeddings.device != references.device:  # where so many are searched is the caller's choice
        raise ValueError(
            f"embeddings are on {embeddings.device}, ref_embeddings on {references.device}: move one of them"
        )
    for name, vectors in (("embeddings", embeddings), ("ref_embeddings", references)):
        if vectors.dim() != 2 or vectors.numel() == 0:
            raise ValueError(f"{name} must be (rows, dimensions), at least one of each, got {tuple(vectors.shape)}")
        if len(vectors) > MOST_REFERENCES:
            raise ValueError(f"{name} hold {len(vectors)} rows; exact retrieval ranks up to {MOST_REFERENCES}")
        if not torch.isfinite(torch.stack(vectors.aminmax())).all():
            raise ValueError(f"{name} hold NaN or infinity, which cannot be ranked")
    if embeddings.shape[1] != references.shape[1]:
        raise ValueError(f"embeddings have {embeddings.shape[1]} dimensions, ref_embeddings {references.shape[1]}")
