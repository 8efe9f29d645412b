"""An index of random unit vectors, whose images do not exist."""

from pathlib import Path

import numpy as np

from ccp_dml.serving.search import approximate
from ccp_dml.serving.search.index import SearchIndex
from ccp_dml.serving.search.index_store import NextGeneration, PinnedModel


def made_up_index(
    folder: Path, count: int, dim: int, kind: approximate.Kind | None = None, digest: str = "d"
) -> SearchIndex:
    generation = NextGeneration(folder, None)
    vectors = np.random.default_rng(0).normal(size=(count, dim)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors.tofile(generation.path("vectors"))
    table = generation.new_table()
    rows = [(number + 1, f"/p/{number}.png", str(number % 7), 1, 1, "x") for number in range(count)]
    table.executemany("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?)", rows)
    table.commit()
    table.close()
    built = None if kind is None else approximate.build(kind, vectors, generation.path("approximate"))
    generation.commit(PinnedModel(path="m", name="m", digest=digest, dim=dim), count, count + 1, built)
    return SearchIndex.open(folder)
