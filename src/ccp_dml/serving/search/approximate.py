"""Approximate search for very large indexes: faiss proposes candidates, our kernel ranks them exactly."""

from pathlib import Path
from typing import Any, Literal

import numpy as np

from ccp_dml.errors import UserError
from ccp_dml.foundation.randomness import derive_seed
from ccp_dml.serving.search.gallery import exact_nearest
from ccp_dml.serving.search.index_store import Approximation, Manifest, damaged

Kind = Literal["hnsw", "ivf"]
KINDS: tuple[Kind, ...] = ("hnsw", "ivf")
CANDIDATES_PER_RESULT = 4
LEAST_CANDIDATES = 64
QUERIES_OF_RECALL = 200
VECTORS_PER_LIST = 64  # from which an inverted file learns where its lists lie
LEAST_VECTORS = 1000  # with fewer, exact search takes a millisecond and an approximate index has nothing to learn from


class ApproximateIndex:
    """A faiss index over the same rows as the stored vectors."""

    def __init__(self, index: Any) -> None:
        self.index = index

    def search(self, queries: np.ndarray, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Find distances and rows (Q, k): faiss's candidates among `vectors` (N, D), ranked by exact distances."""
        k = min(k, len(vectors))
        wanted = min(len(vectors), max(LEAST_CANDIDATES, CANDIDATES_PER_RESULT * k))
        _, candidates = self.index.search(queries, wanted)
        distances, rows = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
        for query in range(len(queries)):
            found = np.sort(candidates[query][candidates[query] >= 0])
            if len(found) < k:  # lists of an inverted file may be almost empty: look at everything instead
                found = np.arange(len(vectors))
            distances[query : query + 1], places = exact_nearest(queries[query : query + 1], vectors[found], k)
            rows[query] = found[places[0]]
        return distances, rows


def kind_for(count: int, asked: Kind | None, had: Kind | None) -> Kind | None:
    """Choose how `count` vectors are searched: as is asked for, or as they were; of too few, exactly.

    What cannot be done, for too few images or for want of faiss, is a UserError.
    """
    if count >= LEAST_VECTORS:
        if asked or had:
            _faiss()
        return asked or had
    if asked is not None:
        raise UserError(f"--approximate is for large indexes; this one has {count:,} images. Leave the option out.")
    return None


def build(kind: Kind, vectors: np.ndarray, file: Path) -> Approximation:
    """Write an approximate index of `vectors` (N, D) to `file`, and measure its recall at 10 on some of them."""
    faiss = _faiss()
    count, dim = vectors.shape
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(dim, 32)
        index.hnsw.efConstruction = 128
        index.hnsw.efSearch = 128
    else:
        lists = max(1, int(4 * count**0.5))
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(dim), dim, min(lists, count // 39 or 1))
        index.nprobe = max(16, index.nlist // 16)
        # Spread over all: indexes hold class after class, and the first ones say nothing about the last.
        spread = np.linspace(0, count - 1, min(count, VECTORS_PER_LIST * index.nlist)).astype(np.int64)
        index.train(np.ascontiguousarray(vectors[spread]))
    for start in range(0, count, 1 << 16):
        index.add(np.ascontiguousarray(vectors[start : start + (1 << 16)]))
    faiss.write_index(index, str(file))
    return Approximation(kind=kind, recall_at_10=_recall(ApproximateIndex(index), vectors), sample=QUERIES_OF_RECALL)


def open_index(folder: Path, manifest: Manifest) -> ApproximateIndex | None:
    """Open the approximate index of a generation, if it has one."""
    if manifest.approximation is None:
        return None
    faiss = _faiss()
    file = folder / manifest.files["approximate"].name
    try:
        return ApproximateIndex(faiss.read_index(str(file)))
    except RuntimeError as error:
        raise damaged(folder, f"{file.name}: {error}") from None


def _recall(index: ApproximateIndex, vectors: np.ndarray) -> float:
    """Measure the share of the 10 nearest that are found, for stored vectors with a little noise, as new images."""
    random = np.random.default_rng(derive_seed(0, "recall of an approximate index"))
    chosen = np.sort(random.choice(len(vectors), size=min(QUERIES_OF_RECALL, len(vectors)), replace=False))
    queries = np.asarray(vectors[chosen])
    spread = float(queries.std(axis=0).mean())
    queries = (queries + random.normal(scale=0.1 * spread, size=queries.shape)).astype(np.float32)
    _, found = index.search(queries, vectors, 10)
    _, true = exact_nearest(queries, vectors, 10)
    return float(np.mean([len(np.intersect1d(*pair)) / len(pair[1]) for pair in zip(found, true, strict=True)]))


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise UserError("Approximate search needs faiss: pip install 'ccp-dml[search]'.") from None
    return faiss
