"""Exact search of an index against faiss.IndexFlatL2: the same neighbours, one query at a time or many.

Ours looks the images up in SQLite, too, and ranks by distances in float64; faiss gives rows.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from side_by_side import Claim, compare, main

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.made_up_index import made_up_index

DIM, K = 128, 10
WHY = (
    "Of our search for one query, the product reads all vectors once, which takes nearly as long as all of faiss's "
    "search; the rest, a third, ranks candidates in float64 and looks the images up, whatever the size of the index."
)


def unit_vectors(count: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(count, DIM)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def measure(quick: bool) -> list[Claim]:
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    count, repeats = (10_000, 5) if quick else (100_000, 15)
    claims = []
    with tempfile.TemporaryDirectory() as scratch:
        index = made_up_index(Path(scratch) / "large.index", count, DIM)
        flat = faiss.IndexFlatL2(DIM)
        flat.add(np.ascontiguousarray(index.vectors))
        for queries in (1, 16, 128):
            vectors = unit_vectors(queries, 1)
            ours = [[hit.item.id - 1 for hit in hits] for hits in index.search(vectors, K)]
            assert ours == flat.search(vectors, K)[1].tolist()
            times = compare(
                lambda vectors=vectors: index.search(vectors, K),  # type: ignore[misc]
                lambda vectors=vectors: flat.search(vectors, K),  # type: ignore[misc]
                repeats,
                calls=max(1, 16 // queries),
            )
            case = f"{queries} queries in {count:,} x {DIM}, k = {K}"
            wanted = None if quick else 1.0
            claims.append(Claim("Exact search", case, times, theirs="faiss Flat", at_least=wanted, note=WHY))
    return claims


if __name__ == "__main__":
    main(__doc__, measure)
