import itertools
import math

import pytest
import torch

from ccp_dml.errors import NonFiniteError
from ccp_dml.functional import kcenter
from ccp_dml.functional.kcenter import covering_radius, greedy_k_center


def brute_force(pool, previous, k, first):
    """Algorithm 2 for one class, in plain Python numbers."""
    points, taken = pool.tolist(), [] if previous is None else previous.tolist()
    picks: list[int] = []
    for _ in range(k):
        if not taken:
            pick = first
        else:
            left = [i for i in range(len(points)) if i not in picks]
            pick = max(left, key=lambda i: (min(math.dist(points[i], t) for t in taken), -i))
        picks.append(pick)
        taken.append(points[pick])
    return picks


def grid(*shape: int, seed: int) -> torch.Tensor:
    """Whole numbers: exact ties and duplicates abound."""
    return torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(seed)).float()


def scattered(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("points", [grid, scattered])
@pytest.mark.parametrize("p", [0, 1, 3])
@pytest.mark.parametrize("k", [1, 4, 9])
def test_equals_brute_force(points, p, k):
    pool, previous = points(6, 9, 2, seed=1), points(6, p, 2, seed=2)
    picks = greedy_k_center(pool, previous if p else None, k)
    expected = [brute_force(pool[c], previous[c] if p else None, k, first=0) for c in range(6)]
    assert picks.tolist() == expected


def test_by_hand():
    pool = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [5.0, 0.0], [9.0, 0.0]]])
    assert greedy_k_center(pool, None, 3).tolist() == [[0, 3, 2]]
    assert greedy_k_center(pool, torch.tensor([[[9.0, 0.0]]]), 2).tolist() == [[0, 2]]


def test_never_picks_a_position_twice_even_among_duplicates():
    pool = torch.ones(3, 5, 2)
    for previous in (None, torch.ones(3, 2, 2)):
        picks = greedy_k_center(pool, previous, 5)
        assert picks.sort(dim=1).values.tolist() == [[0, 1, 2, 3, 4]] * 3


def test_first_pick_is_drawn_by_the_generator():
    pool = scattered(200, 8, 3, seed=0)
    draws = [greedy_k_center(pool, None, 2, torch.Generator().manual_seed(seed)) for seed in (5, 5, 6)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0][:, 0], draws[2][:, 0])
    assert set(draws[0][:, 0].tolist()) == set(range(8))
    for picks, points in zip(draws[0].tolist(), pool, strict=True):
        assert picks == brute_force(points, None, 2, first=picks[0])


def test_generator_is_left_alone_when_there_are_previous_centres():
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    greedy_k_center(scattered(2, 5, 3, seed=0), scattered(2, 1, 3, seed=1), 2, generator)
    assert torch.equal(generator.get_state(), before)


def test_half_precision_and_empty_previous():
    pool = scattered(3, 6, 4, seed=0).half()
    expected = greedy_k_center(pool.float(), None, 4)
    assert torch.equal(greedy_k_center(pool, pool[:, :0], 4), expected)


@pytest.mark.parametrize("k", [-1, 6])
def test_more_picks_than_points_are_refused(k):
    with pytest.raises(ValueError, match=f"between 0 and the 5 points that the pool holds per class, got {k}"):
        greedy_k_center(torch.zeros(2, 5, 3), None, k)


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match=r"pool must be \(classes, points, dimensions\)"):
        greedy_k_center(torch.zeros(5, 3), None, 1)
    with pytest.raises(ValueError, match=r"previous must be \(2, centres, 3\), got shape"):
        greedy_k_center(torch.zeros(2, 5, 3), torch.zeros(3, 1, 3), 1)
    with pytest.raises(ValueError, match=r"previous must be \(2, centres, 3\), got shape"):
        greedy_k_center(torch.zeros(2, 5, 3), torch.zeros(2, 3), 1)


@pytest.mark.parametrize("entry", [torch.nan, torch.inf])
def test_a_pool_that_is_not_finite_is_refused(entry):
    pool = scattered(2, 5, 3, seed=0)
    pool[1, 2, 0] = entry
    with pytest.raises(NonFiniteError, match="The pool holds NaN or infinity"):
        greedy_k_center(pool, None, 2)
    with pytest.raises(NonFiniteError, match="The previous centres hold NaN or infinity"):
        greedy_k_center(torch.zeros_like(pool), pool, 2)


def test_covering_radius_equals_brute_force():
    points, centres = scattered(4, 7, 3, seed=0), scattered(4, 2, 3, seed=1)
    real = torch.arange(7) < torch.tensor([[7], [3], [1], [0]])
    expected = [
        max((min(math.dist(x, c) for c in centres[i].tolist()) for x in points[i][real[i]].tolist()), default=0.0)
        for i in range(4)
    ]
    assert covering_radius(points, centres, real).tolist() == pytest.approx(expected)
    everything = [
        max(min(math.dist(x, c) for c in b) for x in a) for a, b in zip(points.tolist(), centres.tolist(), strict=True)
    ]
    assert covering_radius(points, centres).tolist() == pytest.approx(everything)


def test_k_center_shrinks_the_radius_to_zero():
    pool = scattered(3, 9, 2, seed=0)
    classes = torch.arange(3).unsqueeze(1)
    radii = [covering_radius(pool, pool[classes, greedy_k_center(pool, None, k)]) for k in range(1, 10)]
    assert all((later <= earlier).all() for earlier, later in itertools.pairwise(radii))
    assert not radii[-1].any()


def test_a_class_without_points_has_no_radius():
    assert covering_radius(torch.zeros(2, 0, 3), torch.zeros(2, 1, 3)).tolist() == [0.0, 0.0]


def test_covering_radius_needs_a_centre():
    with pytest.raises(ValueError, match="at least one centre"):
        covering_radius(torch.zeros(2, 5, 3), torch.zeros(2, 0, 3))


@pytest.mark.parametrize("points", [grid, scattered])
@pytest.mark.parametrize("p", [0, 3])
def test_many_classes_are_picked_in_chunks_with_the_same_result(points, p, monkeypatch):
    pool, previous = points(50, 6, 4, seed=1), points(50, p, 4, seed=2)
    whole = greedy_k_center(pool, previous, 4, torch.Generator().manual_seed(3))
    monkeypatch.setitem(kcenter._BLOCK_ELEMENTS, "cpu", 7 * 6 * 4)  # seven classes at a time
    assert torch.equal(greedy_k_center(pool, previous, 4, torch.Generator().manual_seed(3)), whole)


def test_no_classes_have_no_picks():
    assert greedy_k_center(torch.zeros(0, 5, 3), None, 2).shape == (0, 2)
