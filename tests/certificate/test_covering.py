import pytest
import torch

from ccp_dml.certificate.covering import WORST, covered_by_own_images, covered_by_proxies
from ccp_dml.functional.geometry import mean_k_center_radius

NAMES = [f"class {number}" for number in range(8)]


@pytest.fixture
def points():
    """Classes 0, 1, ..., 7, each wider than the one before, in shuffled order."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(80)[torch.randperm(80, generator=generator)] % 8
    width = 0.1 * (labels + 1).double().unsqueeze(1)
    return labels.unsqueeze(1) + width * torch.rand(80, 3, generator=generator, dtype=torch.float64), labels


def test_the_widest_classes_are_named_first(points):
    covering = covered_by_own_images(*points, NAMES)
    assert len(covering.worst) == WORST
    assert {one.name for one in covering.worst[:2]} == {"class 6", "class 7"}
    radii, _ = mean_k_center_radius(*points)
    assert list(covering.radii) == NAMES
    assert list(covering.radii.values()) == pytest.approx(radii.tolist())
    assert covering.mean == pytest.approx(float(radii.mean()))
    assert covering.largest == covering.worst[0].radius == max(covering.radii.values())


def test_proxies_cover_as_far_as_their_farthest_image(points):
    embeddings, labels = points
    proxies = {"class 2": torch.full((1, 3), 2.0), "class 5": torch.tensor([[5.0] * 3, [5.6] * 3])}
    covering = covered_by_proxies(embeddings, labels, NAMES, proxies)
    assert set(covering.radii) == set(proxies)
    for name, centres in proxies.items():
        own = embeddings[labels == NAMES.index(name)]
        expected = max(min(float(torch.dist(x, c.double())) for c in centres) for x in own)
        assert covering.radii[name] == pytest.approx(expected)


def test_without_a_proxy_of_any_class_there_is_no_radius(points):
    assert covered_by_proxies(*points, NAMES, {"somebody else": torch.zeros(1, 3)}) is None
