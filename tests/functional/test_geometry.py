import math

import pytest
import torch

from ccp_dml.functional import geometry
from ccp_dml.functional.geometry import mean_distance_within, mean_inter_class_distance, mean_k_center_radius


def mean_radius(points: list[list[float]]) -> float:
    """Mean over k = 1..n of the radius of k farthest-first centres, from the point nearest to the mean."""
    middle = [sum(column) / len(points) for column in zip(*points, strict=True)]
    centres = [min(points, key=lambda x: math.dist(x, middle))]
    radii = []
    for _ in points:
        nearest = [min(math.dist(x, c) for c in centres) for x in points]
        radii.append(max(nearest))
        centres.append(points[nearest.index(max(nearest))])
    return sum(radii) / len(radii)


@pytest.fixture
def uneven() -> tuple[torch.Tensor, torch.Tensor]:
    """Shuffled points of classes with 1, 2, 5, 9 and 30 members."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([7] * 9 + [-3] * 30 + [2**62] + [0] * 2 + [4] * 5)
    labels = labels[torch.randperm(len(labels), generator=generator)]
    return torch.randn(len(labels), 3, generator=generator), labels


@pytest.mark.parametrize("block_elements", [None, 1, 3 * 3 * 10])
def test_mean_radius_equals_brute_force(uneven, block_elements, monkeypatch):
    if block_elements is not None:
        monkeypatch.setattr(geometry, "_BLOCK_ELEMENTS", block_elements)
    points, labels = uneven
    radii, classes = mean_k_center_radius(points, labels)
    assert classes.tolist() == [-3, 0, 4, 7, 2**62]
    assert radii.tolist() == pytest.approx([mean_radius(points[labels == c].tolist()) for c in classes], rel=1e-5)
    assert radii[-1] == 0  # a single member covers itself


def test_mean_radius_by_hand():
    # On a line at 0, 1, 2, 4: from 2 (nearest to the mean 1.75) the radius is 2; with 0 or 4 also 2; then 1; then 0.
    radii, _ = mean_k_center_radius(torch.tensor([[0.0], [1.0], [2.0], [4.0]]), torch.zeros(4, dtype=torch.int64))
    assert radii.tolist() == [(2 + 2 + 1 + 0) / 4]


def test_mean_radius_does_not_depend_on_the_order(uneven):
    points, labels = uneven
    torch.testing.assert_close(
        mean_k_center_radius(points, labels)[0], mean_k_center_radius(points.flip(0), labels.flip(0))[0]
    )


@pytest.mark.parametrize("block_elements", [None, 5 * 47])
def test_inter_class_distance_equals_brute_force(uneven, block_elements, monkeypatch):
    if block_elements is not None:
        monkeypatch.setattr(geometry, "_BLOCK_ELEMENTS", block_elements)
    points, labels = uneven
    rows = list(zip(points.tolist(), labels.tolist(), strict=True))
    apart = [math.dist(x, z) for x, label in rows for z, other in rows if label != other]
    assert mean_inter_class_distance(points, labels) == pytest.approx(sum(apart) / len(apart), rel=1e-6)


def test_inter_class_distance_needs_two_classes():
    with pytest.raises(ValueError, match="at least two classes"):
        mean_inter_class_distance(torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64))


@pytest.mark.parametrize("block_elements", [1, 32, 1 << 24])
def test_distance_within_groups_equals_brute_force(block_elements, monkeypatch):
    monkeypatch.setattr(geometry, "_BLOCK_ELEMENTS", block_elements)
    groups = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0))
    apart = [math.dist(x, z) for group in groups.tolist() for i, x in enumerate(group) for z in group[:i]]
    assert mean_distance_within(groups) == pytest.approx(sum(apart) / len(apart), rel=1e-6)
    assert mean_distance_within(groups, lambda points: 2 * points) == pytest.approx(2 * sum(apart) / len(apart))
    assert mean_distance_within(groups[:, :1].expand(-1, 3, -1)) == 0
