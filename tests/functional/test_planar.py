import pytest
import torch

from ccp_dml.functional.planar import principal_plane


def flat_cloud(dimensions: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    """Points (200, D) that spread 5 and 2 along two known directions (2, D) and hardly otherwise."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(dimensions, dimensions, generator=generator, dtype=torch.float64)).Q
    spread = torch.tensor([5.0, 2.0] + [0.01] * (dimensions - 2), dtype=torch.float64)
    noise = torch.randn(200, dimensions, generator=generator, dtype=torch.float64)
    return noise * spread @ basis.T + 3.0, basis.T[:2]


def test_the_plane_is_where_the_points_spread_most() -> None:
    points, directions = flat_cloud()
    plane = principal_plane(points)
    overlap = (directions @ plane.axes).abs()
    assert torch.allclose(overlap, torch.eye(2, dtype=torch.float64), atol=0.05)
    assert 0.9999 < plane.share < 1.0
    flat = plane.project(points)
    assert flat.mean(0).tolist() == pytest.approx([0, 0], abs=1e-9)
    assert torch.allclose(torch.cdist(flat, flat), torch.cdist(points, points), atol=0.15)  # hardly anything is lost


def test_the_share_is_of_the_whole_variance() -> None:
    corners = torch.cat([torch.eye(4), -torch.eye(4)])  # spreads alike in four directions
    assert principal_plane(corners).share == pytest.approx(0.5)
    assert principal_plane(torch.ones(3, 4)).share == 1.0  # nothing spreads, nothing is hidden


def test_the_same_points_in_another_order_give_the_same_picture() -> None:
    points, _ = flat_cloud()
    shuffled = points[torch.randperm(200, generator=torch.Generator().manual_seed(1))]
    assert torch.allclose(principal_plane(points).project(points), principal_plane(shuffled).project(points))
    assert (principal_plane(points).axes.abs().amax(0) == principal_plane(points).axes.amax(0)).all()


@pytest.mark.parametrize("dimensions", [1, 2])
def test_what_fits_the_page_is_drawn_as_it_is(dimensions: int) -> None:
    points = torch.randn(10, dimensions) + 4
    flat = principal_plane(points).project(points)
    assert torch.allclose(flat[:, :dimensions].float(), points)
    assert flat.shape == (10, 2)
    assert not flat[:, dimensions:].any()


def test_single_vectors_are_no_cloud() -> None:
    with pytest.raises(ValueError, match=r"must be \(N, D\)"):
        principal_plane(torch.ones(3))
