import pytest
import torch

from ccp_dml.functional import mutual, neighbours
from ccp_dml.functional.neighbours import ExactSearch

ROWS, K = 500, 5  # large enough for products in float32


def scattered(rows: int = ROWS, seed: int = 1) -> torch.Tensor:
    return torch.randn(rows, 8, generator=torch.Generator().manual_seed(seed))


def grid(rows: int = ROWS, seed: int = 1) -> torch.Tensor:
    """Whole numbers in the plane: a hundred references are equally far from a query."""
    return torch.randint(0, 3, (rows, 2), generator=torch.Generator().manual_seed(seed)).float()


def far_from_zero(rows: int = ROWS, seed: int = 1) -> torch.Tensor:
    return 1000 + 0.01 * scattered(rows, seed)


def of_two_scales(rows: int = ROWS, seed: int = 1) -> torch.Tensor:
    return scattered(rows, seed) * torch.where(torch.arange(rows) % 2 == 0, 1e6, 1e-6).unsqueeze(1)


def with_an_outlier(rows: int = ROWS, seed: int = 1) -> torch.Tensor:
    vectors = scattered(rows, seed)
    vectors[7] *= 1e9
    return vectors


def huge(rows: int = ROWS, seed: int = 1) -> torch.Tensor:
    return scattered(rows, seed) * 1e37  # the squares of float32 end at 1.8e19


def tiny(rows: int = ROWS, seed: int = 1) -> torch.Tensor:
    return scattered(rows, seed) * 1e-37


def huge_in_float64(rows: int = ROWS, seed: int = 1) -> torch.Tensor:
    return scattered(rows, seed).double() * 1e300


def in_one_place(rows: int = ROWS, seed: int = 1) -> torch.Tensor:
    return scattered(1, seed).expand(rows, -1)


def repeated(rows: int = ROWS, seed: int = 1) -> torch.Tensor:
    """In 64 dimensions a product may put equal references a last bit apart."""
    return torch.randn(5, 64, generator=torch.Generator().manual_seed(seed)).repeat(rows // 5, 1)


EVERY_KIND = [
    scattered,
    grid,
    far_from_zero,
    of_two_scales,
    with_an_outlier,
    huge,
    tiny,
    huge_in_float64,
    in_one_place,
    repeated,
]


def by_brute_force(queries, references, k, own):
    """Distances (N, k) and indices (N, k) from the difference of every pair, in float64, rounded to 24 bits."""
    exponent = 1000 if queries.dtype == torch.float64 else 0
    queries, references = queries.double() * 2.0**-exponent, references.double() * 2.0**-exponent
    squared = (queries.unsqueeze(1) - references).square().sum(2)
    mantissa, power = torch.frexp(squared)
    squared = (mantissa * 2**24).round() * torch.exp2(power.double() - 24)
    if own:
        squared.fill_diagonal_(torch.inf)
    squared, indices = squared.sort(dim=1, stable=True)
    return squared[:, :k].sqrt() * 2.0**exponent, indices[:, :k]


def found(queries, references, k, block=None):
    search = ExactSearch(queries, references)
    distances = torch.full((len(queries), k), torch.nan, dtype=torch.float64)
    indices = torch.full((len(queries), k), -1)
    rows = torch.arange(len(queries))
    for some, to, nearest in search.nearest(rows, torch.full_like(rows, k), block):
        distances[some], indices[some] = to, nearest
    return distances, indices


def assert_found(queries, references, k, block=None):
    distances, indices = found(queries, references, k, block)
    own = references is None
    expected = by_brute_force(queries, queries if own else references, k, own)
    assert torch.equal(indices, expected[1])
    assert torch.allclose(distances, expected[0], rtol=1e-7, atol=0.0)


@pytest.fixture
def used(monkeypatch):
    """How many rows each way to search was asked for."""
    ways = (
        "all_differences",
        "float32_differences",
        "shortlists",
        "float32_products",
        "float64_products",
        "differences",
    )
    counts = dict.fromkeys((f"_by_{way}" for way in ways), 0)
    for name in counts:
        original = getattr(ExactSearch, name)

        def counted(self, rows, k, name=name, original=original):
            counts[name] += len(rows)
            return original(self, rows, k)

        monkeypatch.setattr(ExactSearch, name, counted)
    return counts


@pytest.mark.parametrize("points", EVERY_KIND)
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("k", [1, K, 200, ROWS - 1])
def test_it_finds_what_brute_force_finds(points, own, k):
    assert_found(points(), None if own else points(seed=2), k)


@pytest.mark.parametrize("points", EVERY_KIND)
@pytest.mark.parametrize("k", [K, 200])
@pytest.mark.parametrize("block", [None, 33])
def test_many_references_are_searched_in_chunks(points, k, block, monkeypatch):
    monkeypatch.setattr(neighbours, "_COLUMNS", 32)
    monkeypatch.setattr(neighbours, "_CHUNK", 64)
    assert_found(points(), None, k, block)


@pytest.mark.parametrize("points", [scattered, far_from_zero, huge, tiny])
def test_plain_vectors_need_float32_products_only(points, used):
    assert_found(points(), None, K)
    assert {name: rows for name, rows in used.items() if rows} == {"_by_float32_products": ROWS}


@pytest.mark.parametrize("points", EVERY_KIND)
@pytest.mark.parametrize("k", [1, K, ROWS])
def test_a_few_queries_are_compared_with_everything(points, k, used, monkeypatch):
    monkeypatch.setitem(neighbours._DIFFERENCES, "cpu", 1)
    assert_found(points(seed=2)[:7], points(), k)
    assert used["_by_float32_differences"] == 7
    if points in (scattered, far_from_zero):
        assert used["_by_float32_products"] == 0


@pytest.mark.parametrize("points", EVERY_KIND)
@pytest.mark.parametrize("k", [1, K, ROWS])
def test_a_few_pairs_are_measured_exactly_at_once(points, k, used):
    assert_found(points(seed=2)[:7], points(), k)
    assert {name: rows for name, rows in used.items() if rows} == {"_by_all_differences": 7}


def test_a_few_items_are_compared_with_each_other():
    assert_found(scattered(9), None, 8)
    assert_found(repeated(15), None, 3)


def test_deep_searches_use_float64_products(used):
    assert_found(scattered(), None, ROWS // 2)
    assert used["_by_float64_products"] == ROWS
    assert used["_by_differences"] == 0


def test_many_ties_at_the_last_place_are_settled_by_differences(used):
    assert_found(repeated(), None, K)
    assert used["_by_differences"] == ROWS


def test_few_ties_are_settled_within_the_shortlist(used):
    vectors = scattered().repeat_interleave(4, dim=0)
    assert_found(vectors, None, K)
    assert used["_by_float64_products"] == 0


def test_products_of_fewer_digits_are_noticed(used, monkeypatch):
    """As if a device multiplied in bfloat16."""
    original = ExactSearch._right_factor_float32.func
    fewer = property(lambda self: original(self).bfloat16().float())
    monkeypatch.setattr(ExactSearch, "_right_factor_float32", fewer)
    assert_found(scattered(), None, K)
    assert used["_by_float64_products"] == ROWS


def test_every_row_may_have_a_depth_of_its_own():
    vectors, rows = scattered(), torch.arange(100, 140)
    depths = torch.arange(1, 41)
    _, expected = by_brute_force(vectors, vectors, 40, own=True)
    seen = []
    for some, _, nearest in ExactSearch(vectors).nearest(rows, depths, block=8):
        assert nearest.shape[1] >= depths[some - 100].max()
        assert torch.equal(nearest, expected[some][:, : nearest.shape[1]])
        seen += some.tolist()
    assert sorted(seen) == rows.tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    assert_found(scattered().to(dtype), scattered(seed=2).to(dtype), K)


def test_distances_equal_to_24_bits_are_ties():
    near, apart = 1.0 + 2.0**-26, 1.0 + 2.0**-20
    references = torch.tensor([[apart], [near], [1.0], [-1.0]], dtype=torch.float64)
    _, indices = found(torch.zeros(1, 1, dtype=torch.float64), references, 4)
    assert indices.tolist() == [[1, 2, 3, 0]]


@pytest.fixture
def small_blocks(monkeypatch):
    """As if there were many blocks of references."""
    monkeypatch.setattr(neighbours, "_COLUMNS", 64)
    monkeypatch.setattr(mutual, "_GROUP", 4)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("points", EVERY_KIND)
@pytest.mark.parametrize("rows", [ROWS, 300, 449])  # even and odd numbers of blocks, full and filled up
@pytest.mark.parametrize("k", [1, K])
def test_items_look_at_each_other(points, rows, k, used):
    assert_found(points(rows), None, k)
    if points in (scattered, far_from_zero, huge, tiny):
        assert used["_by_shortlists"] == rows
        assert used["_by_float32_products"] == 0


@pytest.mark.usefixtures("small_blocks")
def test_some_items_look_at_each_other_with_depths_of_their_own(used):
    vectors = scattered()
    rows = torch.randperm(ROWS, generator=torch.Generator().manual_seed(0))[:400]
    depths = torch.arange(400) // 50 + 1
    _, expected = by_brute_force(vectors, vectors, 8, own=True)
    seen = []
    for some, _, nearest in ExactSearch(vectors).nearest(rows, depths, block=30):
        assert torch.equal(nearest, expected[some][:, : nearest.shape[1]])
        seen += some.tolist()
    assert sorted(seen) == sorted(rows.tolist())
    assert used["_by_shortlists"] == 400


@pytest.mark.usefixtures("small_blocks")
def test_a_gallery_does_not_look_back(used):
    assert_found(scattered(), scattered(seed=2), K)
    assert used["_by_shortlists"] == 0


@pytest.mark.usefixtures("small_blocks")
def test_products_of_fewer_digits_are_noticed_on_both_sides(used, monkeypatch):
    original = ExactSearch._right_factor_float32.func
    fewer = property(lambda self: original(self).bfloat16().float())
    monkeypatch.setattr(ExactSearch, "_right_factor_float32", fewer)
    assert_found(scattered(), None, K)
    assert used["_by_float64_products"] == ROWS
