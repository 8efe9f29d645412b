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
    chosen = exact_search._candidates(searcher.vectors[:1], searcher.vectors, searcher._squared_lengths(), 10)
    assert 10 <= len(chosen) < 40


def test_nothing_to_find():
    distances, rows = ExactSearcher(np.empty((0, 4), np.float32)).nearest(np.ones((2, 4), np.float32), 3)
    assert distances.shape == rows.shape == (2, 0)
