import pytest
import torch

from ccp_dml.functional import distances
from ccp_dml.functional.distances import (
    clip_normalise,
    l2_normalise,
    lengths_of,
    pairwise_distances,
    pairwise_similarities,
    pairwise_squared_distances,
)


def vectors(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shapes", [((7, 5), (11, 5)), ((3, 7, 5), (3, 2, 5)), ((7, 5), (0, 5)), ((0, 5), (4, 5))])
def test_distances_and_similarities_equal_brute_force(shapes):
    a, b = vectors(*shapes[0]), vectors(*shapes[1], seed=1)
    exact = (a.unsqueeze(-2).double() - b.unsqueeze(-3).double()).square().sum(-1)
    torch.testing.assert_close(pairwise_squared_distances(a, b).double(), exact, rtol=1e-6, atol=0)
    torch.testing.assert_close(pairwise_distances(a, b).double(), exact.sqrt(), rtol=1e-6, atol=0)
    products = (a.unsqueeze(-2) * b.unsqueeze(-3)).sum(-1)
    torch.testing.assert_close(pairwise_similarities(a, b), products)


@pytest.mark.parametrize("apart", [1e-1, 1e-2, 1e-3, 1e-4])
def test_near_duplicates_keep_their_relative_accuracy(apart):
    a = l2_normalise(vectors(50, 128))
    b = a + apart * l2_normalise(vectors(50, 128, seed=1))
    exact = (a.double() - b.double()).norm(dim=1)
    torch.testing.assert_close(pairwise_distances(a, b).diagonal().double(), exact, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_vectors_are_exactly_zero_apart(dtype):
    a = 3 * vectors(70, 128).to(dtype)
    assert not pairwise_distances(a, a.clone()).diagonal().any()


def test_similarities_have_gradients_and_distances_none():
    a, b = vectors(4, 3).double().requires_grad_(), vectors(5, 3, seed=1).double().requires_grad_()
    assert torch.autograd.gradcheck(pairwise_similarities, (a, b))
    assert not pairwise_distances(a, b).requires_grad


def test_nan_stays_visible():
    a = torch.tensor([[torch.nan, 0.0], [1.0, 0.0]])
    assert pairwise_distances(a, torch.zeros(1, 2)).isnan().tolist() == [[True], [False]]


def test_blocks_do_not_change_the_result(monkeypatch):
    a, b = vectors(6, 5), vectors(23, 5, seed=1)
    whole = pairwise_distances(a, b)
    monkeypatch.setitem(distances._BLOCK_PAIRS, "cpu", 6 * 4)
    torch.testing.assert_close(pairwise_distances(a, b), whole, rtol=1e-7, atol=0)


def test_half_precision_gives_float32_even_under_autocast():
    a, b = vectors(4, 3).half(), vectors(5, 3, seed=1).half()
    expected, products = torch.cdist(a.float(), b.float()), a.float() @ b.float().T
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(pairwise_distances(a, b), expected)
        torch.testing.assert_close(pairwise_similarities(a, b), products)


def test_shapes_that_do_not_fit_are_refused():
    for wrong in ((5, 4), (2, 5, 3), (3,)):
        for function in (pairwise_distances, pairwise_similarities, pairwise_squared_distances):
            with pytest.raises(ValueError, match=r"expected a \(..., N, D\) and b \(..., M, D\)"):
                function(torch.zeros(4, 3), torch.zeros(wrong))


def test_whole_numbers_are_normalised_as_numbers():
    v = torch.tensor([[3, 4]])
    torch.testing.assert_close(clip_normalise(v), torch.tensor([[0.6, 0.8]]))
    torch.testing.assert_close(l2_normalise(v), torch.tensor([[0.6, 0.8]]))


def test_clip_normalise_leaves_the_unit_ball_alone():
    v = torch.tensor([[0.3, 0.4], [3.0, 4.0], [0.0, 0.0]])
    torch.testing.assert_close(clip_normalise(v), torch.tensor([[0.3, 0.4], [0.6, 0.8], [0.0, 0.0]]))
    torch.testing.assert_close(clip_normalise(v.view(3, 1, 2)), clip_normalise(v).view(3, 1, 2))


def test_l2_normalise_reaches_the_unit_sphere():
    v = torch.tensor([[0.3, 0.4], [3.0, 4.0], [0.0, 0.0]])
    torch.testing.assert_close(l2_normalise(v), torch.tensor([[0.6, 0.8], [0.6, 0.8], [0.0, 0.0]]))


def test_normalisation_gradients():
    v = vectors(5, 3).double() * torch.tensor([0.1, 0.3, 1.0, 2.0, 5.0]).double().unsqueeze(1)
    assert torch.autograd.gradcheck(clip_normalise, v.requires_grad_())
    assert torch.autograd.gradcheck(l2_normalise, v)
    zero = torch.zeros(1, 3, requires_grad=True)
    clip_normalise(zero).sum().backward()
    assert zero.grad.tolist() == [[1.0, 1.0, 1.0]]


@pytest.mark.parametrize("normalise", [clip_normalise, l2_normalise])
def test_half_vectors_whose_norm_overflows_half_are_normalised(normalise):
    long = torch.full((1, 64), 30_000.0, dtype=torch.float16)  # its length, 240,000, is beyond float16
    assert normalise(long).dtype == torch.float16
    torch.testing.assert_close(normalise(long), torch.full((1, 64), 0.125, dtype=torch.float16))


@pytest.mark.parametrize("normalise", [clip_normalise, l2_normalise])
@pytest.mark.parametrize("length", [1e19, 3e19, 1e30, 1e38])
def test_vectors_whose_squares_overflow_are_normalised(normalise, length):
    long = torch.tensor([[0.6, 0.8], [0.0, 0.5]]) * torch.tensor([[length], [1.0]])
    expected = torch.tensor([[0.6, 0.8], [0.0, 0.5 if normalise is clip_normalise else 1.0]])
    torch.testing.assert_close(normalise(long), expected)


@pytest.mark.parametrize("normalise", [clip_normalise, l2_normalise])
def test_a_length_beyond_float32_is_nan_and_not_zero(normalise):
    assert normalise(torch.full((1, 64), 3e38)).isnan().all()


def test_lengths_are_those_of_torch_where_these_are_finite():
    vectors = torch.randn(50, 7)
    assert torch.equal(lengths_of(vectors), torch.linalg.vector_norm(vectors, dim=1))
