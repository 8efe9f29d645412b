import math

import pytest
import torch

from ccp_dml.errors import UserError
from ccp_dml.runs.illustrations.tsne import tsne_plane


def test_tsne_keeps_neighbours_and_repeats_itself():
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(24).repeat_interleave(8)  # more than the plane of most spread could keep apart
    embeddings = 5 * torch.eye(60)[labels] + 0.4 * torch.randn(192, 60, generator=draw)
    places = tsne_plane(embeddings, seed=1)
    assert places.shape == (192, 2)
    distances = torch.cdist(places, places).fill_diagonal_(math.inf)
    assert (labels[distances.argmin(1)] == labels).float().mean() > 0.95
    assert torch.equal(places, tsne_plane(embeddings, seed=1))


@pytest.mark.parametrize("shape", [(12, 8), (80, 60), (12, 1)])
@pytest.mark.parametrize("spread", [0, 1e-30])
def test_points_that_coincide_are_placed_at_zero(shape, spread):
    embeddings = spread * torch.arange(shape[0])[:, None].expand(shape)
    assert torch.equal(tsne_plane(embeddings, seed=1), torch.zeros(shape[0], 2))


def test_points_that_nearly_coincide_have_a_map():
    draw = torch.Generator().manual_seed(0)
    assert tsne_plane(1e-17 * torch.randn(12, 8, generator=draw), seed=1).isfinite().all()


def test_embeddings_that_are_not_finite_are_refused():
    embeddings = torch.eye(12)
    embeddings[3, 3] = math.nan
    with pytest.raises(UserError, match="NaN or infinite"):
        tsne_plane(embeddings, seed=1)
