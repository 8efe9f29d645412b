"""Exact search in vectors that stay: what depends on them alone is computed once, not with every query."""

import threading

import numpy as np
import torch

from ccp_dml.serving.search.gallery import exact_nearest

FEW = 4096  # up to here there is nothing to gain
MOST_BYTES_IN_MEMORY = 1 << 29
"""Up to here vectors are copied from a mapped file into memory: the processor finds its way in large pages faster."""
PAIRS = 1 << 22  # pairs of query and reference whose distances are held at a time
GROUP = 32  # distances that share a minimum: whole rows of these are compared at once, which a selection cannot do


class ExactSearcher:
    """Finds the nearest of `vectors` (N, D), exactly, fast for a few queries at a time.

    A float32 product gives every squared distance up to a bound e on its rounding (see `functional.neighbours`). If k
    of these are at most t, no reference beyond t + 2 e can be among the k nearest. The others, mostly few more than k,
    are ranked by the kernel of `functional.retrieval`, which decides all.
    """

    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors = vectors
        self._squared: np.ndarray | None = None  # (N,) squared lengths
        self._longest = 0.0  # length of the longest vector
        self._lock = threading.Lock()

    def nearest(self, queries: np.ndarray, k: int, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Find distances and rows (Q, min(k, N)) of the nearest, equals by lower row; of ascending `rows` if given."""
        self._prepare()
        references = self.vectors if rows is None else self.vectors[rows]
        chosen = np.arange(len(references))
        if len(references) > FEW:
            assert self._squared is not None
            squared = self._squared if rows is None else self._squared[rows]
            chosen = _candidates(queries, references, squared, self._longest, min(k, len(references)))
        distances, places = exact_nearest(queries, references[chosen], k)
        found = chosen[places]
        return distances, found if rows is None else rows[found]

    def _prepare(self) -> None:
        """Compute once what depends on the vectors alone, unless they are few."""
        with self._lock:
            if self._squared is not None or len(self.vectors) <= FEW:
                return
            if self.vectors.nbytes <= MOST_BYTES_IN_MEMORY:
                self.vectors = np.array(self.vectors)
            starts = range(0, len(self.vectors), 1 << 14)
            parts = [np.square(self.vectors[start : start + (1 << 14)], dtype=np.float64) for start in starts]
            self._squared = np.concatenate([part.sum(axis=1) for part in parts]).astype(np.float32)
            self._longest = float(self._squared.max()) ** 0.5


def _candidates(queries: np.ndarray, references: np.ndarray, squared: np.ndarray, longest: float, k: int) -> np.ndarray:
    """Find rows, ascending, among which the `k` nearest references of every query are for certain."""
    unit = float(np.finfo(np.float32).eps) / 2
    longest *= 1 + 4 * unit
    found = np.zeros(len(references), dtype=bool)
    all_references = torch.from_numpy(references)
    for start in range(0, len(queries), max(1, PAIRS // len(references))):
        some = queries[start : start + max(1, PAIRS // len(references))]
        if len(some) == 1:
            # (1, N). Of one vector, einsum takes half of the time of a product by BLAS, in numpy or torch.
            products = np.einsum("nd,d->n", references, -2.0 * some[0])[None]
        else:
            products = torch.mm(torch.from_numpy(-2.0 * some), all_references.T).numpy()  # (q, N)
        for query, product in zip(some, products, strict=True):
            # |r|^2 - 2 q.r: ordered as the distances of a query, and off by no more than they are.
            product += squared
            length = float(np.linalg.norm(query.astype(np.float64)))
            error = (len(query) + 8) * unit * (length + longest) ** 2
            limit = _at_least_as_large_as_kth(product, k) + 2 * error
            # Distances that agree to 24 bits count as equal: a few of these bits are kept in reserve.
            limit += 8 * unit * (abs(limit) + length**2)
            found |= product <= np.nextafter(np.float32(limit), np.float32(np.inf))
    return np.flatnonzero(found)


def _at_least_as_large_as_kth(values: np.ndarray, k: int) -> float:
    """Bound the `k`-th smallest of `values` (N,) from above, tightly: by the k-th smallest of minima of groups.

    Each of the k groups with the smallest minima has a value of that size or less. Where groups are few, the k-th
    smallest itself is looked for.
    """
    groups = len(values) // GROUP
    if groups >= GROUP * k:
        values = values[: GROUP * groups].reshape(GROUP, groups).min(axis=0)
    return float(np.partition(values, k - 1)[k - 1])
