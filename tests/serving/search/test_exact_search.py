"""Exact search in vectors that stay gives what the kernel gives, bit for bit, however hard the vectors are."""

import numpy as np
import pytest
import torch

from ccp_dml.functional.retrieval import nearest_references
from ccp_dml.serving.search import exact_search
from ccp_dml.serving.search.exact_search import ExactSearcher


def cases():
    random = np.random.default_rng(0)
    unit = random.normal(size=(6000, 24))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    yield "unit", unit
    yield "duplicates", unit[random.integers(0, 300, size=6000)]
    yield "collapsed", unit[:1] + 1e-6 * random.normal(size=(6000, 24))
    yield "far from zero", unit + 100
    yield "mixed lengths", unit * 10.0 ** random.integers(-6, 3, size=(6000, 1))
    yield "grid with ties", random.integers(0, 3, size=(6000, 24)).astype(float)
    yield "all equal", np.ones((6000, 24))


@pytest.mark.parametrize(("name", "vectors"), list(cases()), ids=[name for name, _ in cases()])
@pytest.mark.parametrize("k", [1, 10, 5999])
def test_it_is_the_kernels_answer(name, vectors, k):
    vectors = vectors.astype(np.float32)
    random = np.random.default_rng(1)
    noise = random.normal(size=(6, 24)) * vectors.std()
    queries = np.concatenate([vectors[[0, 17, 5999]], vectors[:6] + noise]).astype(np.float32)
    distances, rows = ExactSearcher(vectors).nearest(queries, k)
    expected = nearest_references(torch.from_numpy(queries), k, torch.from_numpy(vectors))
    assert np.array_equal(rows, expected[1].numpy()), name
    assert np.array_equal(distances, expected[0].numpy()), name


def test_some_rows_alone(monkeypatch):
    vectors = np.random.default_rng(0).normal(size=(9000, 8)).astype(np.float32)
    rows = np.arange(1, 9000, 2)
    queries = vectors[:5]
    _, found = ExactSearcher(vectors).nearest(queries, 7, rows)
    _, expected = nearest_references(torch.from_numpy(queries), 7, torch.from_numpy(vectors[rows]))
    assert np.array_equal(found, rows[expected.numpy()])
    monkeypatch.setattr(exact_search, "PAIRS", 9000)  # one query at a time
    assert np.array_equal(ExactSearcher(vectors).nearest(queries, 7, rows)[1], found)


def test_only_few_are_ranked_twice():
    vectors = np.random.default_rng(0).normal(size=(20_000, 32)).astype(np.float32)
    searcher = ExactSearcher(vectors)
    searcher.nearest(vectors[:1], 10)
    chosen = exact_search._candidates(vectors[:1], vectors, searcher._squared, searcher._longest, 10)
    assert 10 <= len(chosen) < 40


def test_a_mapped_file_that_is_too_large_stays_on_the_disk(tmp_path, monkeypatch):
    vectors = np.random.default_rng(0).normal(size=(5000, 8)).astype(np.float32)
    vectors.tofile(tmp_path / "vectors.f32")

    def searcher():
        return ExactSearcher(np.memmap(tmp_path / "vectors.f32", np.float32, mode="c", shape=vectors.shape))

    copied, mapped = searcher(), searcher()
    found = copied.nearest(vectors[:3], 5)
    monkeypatch.setattr(exact_search, "MOST_BYTES_IN_MEMORY", vectors.nbytes - 1)
    for one, other in zip(found, mapped.nearest(vectors[:3], 5), strict=True):
        assert np.array_equal(one, other)
    assert not isinstance(copied.vectors, np.memmap)
    assert isinstance(mapped.vectors, np.memmap)


def test_nothing_to_find():
    distances, rows = ExactSearcher(np.empty((0, 4), np.float32)).nearest(np.ones((2, 4), np.float32), 3)
    assert distances.shape == rows.shape == (2, 0)
