"""The nearest references of some queries of a test set, for galleries and for counting who is taken for whom."""

import torch
from torch import Tensor

from ccp_dml.data.labelled import TestSet
from ccp_dml.functional.retrieval import nearest_references


def true_references(test: TestSet) -> Tensor:
    """How many true references each query has (N,); an item is no reference of itself."""
    if test.gallery is None:
        return torch.bincount(test.queries.labels)[test.queries.labels] - 1
    return torch.bincount(test.gallery.labels, minlength=len(test.queries.class_names))[test.queries.labels]


def nearest_to_rows(
    embeddings: Tensor, ref_embeddings: Tensor | None, rows: Tensor, depth: int
) -> tuple[Tensor, Tensor]:
    """Distances and indices (Q, depth) of the references nearest to the queries at `rows` (Q,), on the CPU."""
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
