import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from ccp_dml.functional.retrieval import RetrievalScores, nearest_references, retrieval_scores


def brute_force(e, y, r=None, ry=None, k=(1,)) -> RetrievalScores:
    """The definitions of docs/glossary.md, query by query, in plain Python numbers."""
    own = r is None
    queries, labels = e.tolist(), y.tolist()
    references, ref_labels = (queries, labels) if r is None else (r.tolist(), ry.tolist())
    rows = []
    for i, (query, label) in enumerate(zip(queries, labels, strict=True)):
        others = [j for j in range(len(references)) if not (own and i == j)]
        ranked = sorted(others, key=lambda j: (math.dist(query, references[j]), j))
        hits = [ref_labels[j] == label for j in ranked]
        r_i = sum(hits)
        if r_i:
            precisions = [sum(hits[: j + 1]) / (j + 1) for j in range(r_i)]
            average = sum(p for p, hit in zip(precisions, hits, strict=False) if hit) / r_i
            rows.append([average, sum(hits[:r_i]) / r_i, float(hits[0]), *(float(any(hits[:at])) for at in k)])
    means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    return RetrievalScores(
        map_at_r=means[0],
        r_precision=means[1],
        precision_at_1=means[2],
        recall_at=dict(zip(k, means[3:], strict=True)),
        queries=len(rows),
        skipped=len(queries) - len(rows),
    )


def assert_same(ours: RetrievalScores, expected: RetrievalScores) -> None:
    for name in ("map_at_r", "r_precision", "precision_at_1", "recall_at"):
        assert getattr(ours, name) == pytest.approx(getattr(expected, name), rel=1e-12), name
    assert (ours.queries, ours.skipped) == (expected.queries, expected.skipped)


def scattered(rows: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, 8, generator=torch.Generator().manual_seed(seed))


def grid(rows: int, seed: int) -> torch.Tensor:
    """Whole numbers in the plane: duplicates and exact ties abound."""
    return torch.randint(0, 4, (rows, 2), generator=torch.Generator().manual_seed(seed)).float()


def classes(rows: int, seed: int, kinds: int = 9) -> torch.Tensor:
    """Classes of uneven size: the first few large, two with a single member."""
    drawn = torch.randint(0, kinds, (rows,), generator=torch.Generator().manual_seed(seed)) ** 2 // kinds
    drawn[rows // 2], drawn[rows // 3] = 100, 101
    return drawn


@pytest.mark.parametrize("points", [scattered, grid])
@pytest.mark.parametrize("block", [None, 1, 7])
def test_self_retrieval_equals_brute_force(points, block):
    e, y = points(90, seed=1), classes(90, seed=2)
    ours = retrieval_scores(e, y, k=(1, 2, 5, 1000), block=block)
    assert_same(ours, brute_force(e, y, k=(1, 2, 5, 1000)))
    assert ours.skipped == 2  # the two that are alone in their class


@pytest.mark.parametrize("points", [scattered, grid])
@pytest.mark.parametrize("block", [None, 1, 7])
def test_query_and_gallery_equal_brute_force(points, block):
    e, y, r, ry = points(40, seed=1), classes(40, seed=2), points(70, seed=3), classes(70, seed=4, kinds=8)
    ry[ry == 2] = 55  # a class that queries lack, and one that the gallery lacks
    ours = retrieval_scores(e, y, r, ry, k=(3, 1), block=block)
    assert_same(ours, brute_force(e, y, r, ry, k=(3, 1)))
    assert ours.skipped > 0
    assert list(ours.recall_at) == [3, 1]


def test_identical_vectors_in_different_classes_rank_by_index():
    # In 64 dimensions a matrix product may put equal references a last bit apart; the lower index must still win.
    vectors = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    e, y = vectors.repeat(13, 1), torch.arange(65) % 3
    assert_same(retrieval_scores(e, y), brute_force(e, y))


def test_a_query_in_the_gallery_is_its_own_match_but_never_without_a_gallery():
    e, y = scattered(6, seed=0), torch.tensor([0, 0, 1, 1, 2, 2])
    assert retrieval_scores(e, y, e, y).precision_at_1 == 1.0
    assert_same(retrieval_scores(e, y), brute_force(e, y))
    # All in one point, the nearest other is the lowest other index: only item 1 finds its class first.
    assert retrieval_scores(torch.zeros(6, 8), y).precision_at_1 == pytest.approx(2 / 6)


def test_by_hand():
    # On a line, class 0 at 0, 1, 5 and class 1 at 2, 9. Query 0 sees 1 (hit), 2, 5: MAP@2 = 1/2, P@2 = 1/2.
    e = torch.tensor([[0.0], [1.0], [5.0], [2.0], [9.0]])
    y = torch.tensor([0, 0, 0, 1, 1])
    # Query 1: 0 and 2 tie at 1 apart, 0 has the lower index: 1/2, 1/2. Query 5 sees 2, then 1, which ties with 9 at 4
    # apart and has the lower index: MAP@2 = (1/2) / 2, P@2 = 1/2. Query 2 sees 1 and 0, query 9 sees 5 and only then 2.
    scores = retrieval_scores(e, y, k=(1, 2))
    assert scores.map_at_r == pytest.approx((0.5 + 0.5 + 0.25) / 5)
    assert scores.r_precision == pytest.approx(1.5 / 5)
    assert scores.precision_at_1 == pytest.approx(2 / 5)
    assert scores.recall_at == {1: pytest.approx(2 / 5), 2: pytest.approx(4 / 5)}


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.uint8])
def test_integer_labels_of_any_type(dtype):
    e, y = scattered(60, seed=1), torch.arange(60) % 7
    assert retrieval_scores(e, y.to(dtype)) == retrieval_scores(e, y)


def test_huge_and_negative_labels():
    e, y = scattered(60, seed=1), torch.arange(60) % 7
    ends = torch.iinfo(torch.int64)
    for relabelled in (ends.max - y, ends.min + y, (y - 3) * 2**60):
        assert retrieval_scores(e, relabelled) == retrieval_scores(e, y)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions(dtype):
    e, y = scattered(60, seed=1).to(dtype), torch.arange(60) % 7
    assert_same(retrieval_scores(e, y), brute_force(e, y))


@pytest.fixture
def double_by_default():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double_by_default")
@pytest.mark.parametrize("gallery", [False, True])
def test_a_program_may_make_double_precision_the_default(gallery):
    draw, labels = torch.Generator().manual_seed(0), torch.arange(3000) // 3
    vectors = torch.randn(3000, 4, generator=draw, dtype=torch.float32)
    references = (vectors.roll(1, 0), labels) if gallery else (None, None)
    found = retrieval_scores(vectors, labels, *references)
    torch.set_default_dtype(torch.float32)
    assert found == retrieval_scores(vectors, labels, *references)
    torch.set_default_dtype(torch.float64)
    distances, _ = nearest_references(vectors, 2, references[0])
    assert distances.dtype == torch.float32


def test_scores_do_not_need_a_gradient():
    e, y = scattered(20, seed=1).requires_grad_(), torch.arange(20) % 3
    assert retrieval_scores(e, y) == retrieval_scores(e.detach(), y)


@pytest.mark.parametrize("points", [scattered, grid])
@pytest.mark.parametrize("own", [True, False])
def test_nearest_references_equal_brute_force(points, own):
    e, r = points(30, seed=1), points(50, seed=2)
    references = e if own else r
    distances, indices = nearest_references(e, 6, None if own else r, block=4)
    for i, query in enumerate(e.tolist()):
        to_all = [(math.dist(query, other), j) for j, other in enumerate(references.tolist()) if not (own and i == j)]
        expected = sorted(to_all)[:6]
        assert indices[i].tolist() == [j for _, j in expected]
        assert distances[i].tolist() == pytest.approx([d for d, _ in expected], rel=1e-6)


def test_all_other_references_can_be_asked_for():
    _, indices = nearest_references(scattered(5, seed=0), 4)
    assert [sorted(row) for row in indices.tolist()] == [[j for j in range(5) if j != i] for i in range(5)]
    with pytest.raises(ValueError, match="between 1 and the 4 references there are, got 5"):
        nearest_references(scattered(5, seed=0), 5)


def test_progress_counts_every_query_once():
    e, y = scattered(90, seed=1), classes(90, seed=2)
    seen = []
    scores = retrieval_scores(e, y, block=20, progress=lambda done, of: seen.append((done, of)))
    assert seen[-1] == (scores.queries, scores.queries)
    assert seen == sorted(set(seen))
    assert len(seen) >= 4


@pytest.mark.parametrize("spread", [0.1, 3.0])
def test_many_small_classes_equal_brute_force(spread):
    """Good and poor embeddings, of so many references that products in float32 propose the neighbours."""
    y = torch.arange(150).repeat_interleave(4)[torch.randperm(600, generator=torch.Generator().manual_seed(0))]
    e = scattered(150, seed=1)[y] + spread * scattered(600, seed=2)
    assert_same(retrieval_scores(e, y, k=(1, 4)), brute_force(e, y, k=(1, 4)))


def test_bad_input_is_named():
    e, y = scattered(6, seed=0), torch.arange(6) // 2
    with pytest.raises(ValueError, match="no query has a true reference"):
        retrieval_scores(e, torch.arange(6))
    with pytest.raises(ValueError, match="no query has a true reference"):
        retrieval_scores(e, y, e, y + 10)
    with pytest.raises(ValueError, match="at least one of each"):
        retrieval_scores(e[:0], y[:0])
    with pytest.raises(ValueError, match=r"ref_embeddings must be .* at least one of each"):
        retrieval_scores(e, y, e[:0], y[:0])
    with pytest.raises(ValueError, match="labels must be one per row of embeddings"):
        retrieval_scores(e, y[:5])
    with pytest.raises(ValueError, match="give both or neither"):
        retrieval_scores(e, y, e)
    with pytest.raises(ValueError, match="embeddings have 8 dimensions, ref_embeddings 7"):
        retrieval_scores(e, y, e[:, :7], y)
    with pytest.raises(ValueError, match="at least one of each"):
        retrieval_scores(e[:, :0], y)
    with pytest.raises(ValueError, match="embeddings must be a tensor, not ndarray"):
        retrieval_scores(e.numpy(), y)
    with pytest.raises(ValueError, match="ref_labels must be a tensor, not list"):
        retrieval_scores(e, y, e, y.tolist())
    with pytest.raises(ValueError, match="labels must be a tensor, not ndarray: it holds names; number them"):
        retrieval_scores(e, np.array(["wren"] * len(y)))
    with pytest.raises(ValueError, match="embeddings are on cpu, ref_embeddings on meta: move one of them"):
        retrieval_scores(e, y, e.to("meta"), y)
    with pytest.raises(ValueError, match="embeddings are on cpu, ref_embeddings on meta: move one of them"):
        nearest_references(e, 1, e.to("meta"))
    with pytest.raises(ValueError, match=r"k must be a sequence such as \(1, 10\), got 5"):
        retrieval_scores(e, y, k=5)
    with pytest.raises(ValueError, match="every k must be at least 1"):
        retrieval_scores(e, y, k=(0,))
    with pytest.raises(ValueError, match="embeddings hold NaN or infinity"):
        retrieval_scores(e.log(), y)


@pytest.mark.parametrize("rows", [30, 700])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_vectors_of_very_different_lengths_are_ranked_exactly(rows, dtype):
    draw = torch.Generator().manual_seed(0)
    lengths = 10.0 ** torch.randint(-6, 7, (rows, 1), generator=draw).to(dtype)
    vectors = torch.randn(rows, 3, generator=draw, dtype=dtype) * lengths
    _, found = nearest_references(vectors, 2)
    exact = [[Fraction(number) for number in row] for row in vectors.tolist()]
    for query in range(0, rows, max(1, rows // 15)):
        squared = [
            sum((a - b) ** 2 for a, b in zip(exact[query], other, strict=True)) if place != query else math.inf
            for place, other in enumerate(exact)
        ]
        nearest = sorted(squared)[:2]
        assert [float(squared[place]) for place in found[query].tolist()] == pytest.approx(
            [float(one) for one in nearest], rel=2**-23, abs=0
        )
