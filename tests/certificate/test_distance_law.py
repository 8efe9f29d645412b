import math
from itertools import combinations

import pytest
import torch

from ccp_dml.certificate import distance_law
from ccp_dml.certificate.distance_law import pair_laws, threshold_grid
from ccp_dml.functional.distances import pairwise_distances

LAWS = ("same_by_images", "same_by_classes", "different_by_images", "different_by_classes")


@pytest.fixture
def uneven():
    """Shuffled points of classes with 1, 2, 5 and 9 members."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([7] * 9 + [100] + [0] * 2 + [4] * 5)
    labels = labels[torch.randperm(len(labels), generator=generator)]
    return torch.rand(len(labels), 3, generator=generator, dtype=torch.float64), labels


def explicit(points, labels, name, beta, margin):
    """Weighted share of pairs on the wrong side of beta, and mean excess over the margin, pair by pair."""
    sizes = {label: labels.tolist().count(label) for label in labels.tolist()}
    total = wrong = excess = 0.0
    for i, j in combinations(range(len(labels)), 2):
        a, b = labels[i].item(), labels[j].item()
        d = math.dist(points[i].tolist(), points[j].tolist())
        if (a == b) != name.startswith("same"):
            continue
        weight = {
            "same_by_images": (sizes[a] // 2) / math.comb(sizes[a], 2) if a == b else 0,
            "same_by_classes": 1 / math.comb(sizes[a], 2) if a == b else 0,
            "different_by_images": 1,
            "different_by_classes": 1 / (sizes[a] * sizes[b]),
        }[name]
        total += weight
        wrong += weight * (d >= beta if a == b else d <= beta)
        excess += weight * max(0.0, d - margin if a == b else margin - d)
    return wrong / total, excess / total


@pytest.mark.parametrize("block_pairs", [None, 1, 40])
@pytest.mark.parametrize("name", LAWS)
def test_it_equals_counting_pair_by_pair(uneven, name, block_pairs, monkeypatch):
    if block_pairs is not None:
        monkeypatch.setattr(distance_law, "_BLOCK_PAIRS", block_pairs)
    points, labels = uneven
    law = getattr(pair_laws(points, labels, threshold_grid(points, 0.6, 0.45)), name)
    wrong, excess = explicit(points, labels, name, 0.6, 0.45)
    assert 0 < wrong < 1
    assert law.wrong_rate(0.6) == pytest.approx(wrong, abs=1e-12)
    assert law.mean_excess(0.45, torch.Tensor.clone) == pytest.approx(excess, abs=1e-12)
    assert law.pairs == (1 + 10 + 36 if name.startswith("same") else 136 - 47)


def test_a_pair_exactly_at_the_threshold_is_wrong_either_way():
    points = torch.tensor([[0.0], [0.0], [0.0], [1.0]], dtype=torch.float64)
    laws = pair_laws(points, torch.tensor([0, 0, 1, 1]), torch.tensor([0.0, 0.5], dtype=torch.float64))
    assert laws.same_by_images.wrong_rates().tolist() == [1, 0.5]  # distances 0 and 1
    assert laws.different_by_images.wrong_rates().tolist() == [0.5, 0.5]  # 0, 0, 1 and 1


def test_values_are_added_up_on_the_scale_of_the_constraint():
    def halved_square(distances):
        return distances.square() / 2

    points = torch.tensor([[0.0], [0.6], [1.0]], dtype=torch.float64)
    laws = pair_laws(points, torch.tensor([0, 0, 1]), torch.tensor([0.0, 0.8], dtype=torch.float64), halved_square)
    assert laws.same_by_images.mean_excess(0.0, halved_square) == pytest.approx(0.18)
    assert laws.different_by_images.mean_excess(0.8, halved_square) == pytest.approx((0.32 - 0.08) / 2)


def test_the_grid_reaches_beyond_every_distance_and_contains_what_is_asked_for():
    points = torch.tensor([[0.0, 0.0], [0.03, 0.04]], dtype=torch.float64)
    grid = threshold_grid(points, 0.7, 0.01)
    assert {0.7, 0.01} <= set(grid.tolist())
    assert grid[0] == 0
    assert (grid[:-1] < grid[1:]).all()
    assert 0.05 <= grid[-2] < 0.051  # as fine as the embedding is small
    assert torch.isfinite(threshold_grid(points[:1])).all()


def test_without_pairs_there_is_no_rate():
    laws = pair_laws(torch.zeros(3, 2, dtype=torch.float64), torch.zeros(3, dtype=torch.int64), torch.zeros(1).double())
    assert laws.different_by_images.pairs == 0
    assert laws.different_by_images.wrong_rate(0.0) is None
    assert laws.different_by_classes.mean_excess(0.0, torch.Tensor.clone) is None
    assert laws.same_by_images.wrong_rate(0.0) == 1.0


def test_only_counted_thresholds_can_be_asked_for(uneven):
    law = pair_laws(*uneven, threshold_grid(uneven[0])).same_by_images
    for threshold in (0.123456, 50.0):
        with pytest.raises(ValueError, match=str(threshold)):
            law.wrong_rate(threshold)


@pytest.mark.parametrize("thresholds", [[0.0], [0.5], [0.0, 0.5, 0.5 + 1e-15, 0.7], [1e-300, 2e-300, 0.5, 9.0]])
def test_pairs_at_between_and_beyond_thresholds_are_counted_as_by_a_binary_search(thresholds):
    """Whole multiples of a quarter: many distances equal a threshold, others lie beyond the last."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randint(0, 5, (40, 2), generator=generator).double() / 4
    labels = torch.randint(0, 6, (40,), generator=generator)
    thresholds = torch.tensor(thresholds, dtype=torch.float64)
    laws = pair_laws(points, labels, thresholds)
    distances = pairwise_distances(points, points)
    is_same = labels[:, None] == labels
    upper = torch.ones_like(is_same).triu(1)
    for law, pairs, right in (
        (laws.same_by_images, distances[is_same & upper], True),
        (laws.different_by_images, distances[~is_same & upper], False),
    ):
        places = torch.searchsorted(thresholds, pairs, right=right)
        expected = torch.bincount(places, minlength=len(thresholds) + 1)
        assert law.pairs == len(pairs)
        if not right:  # these weigh 1 each
            assert torch.equal(law.weights.long(), expected)
        assert torch.equal(law.weights > 0, expected > 0)


def test_distances_are_those_of_functional_distances():
    """Equal points are at distance zero, although their product is not exact."""
    points = torch.randn(20, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    points[10:] = points[:10]
    laws = pair_laws(points, torch.arange(20), torch.tensor([0.0], dtype=torch.float64))
    assert laws.different_by_images.weights.tolist() == [10, 180]
