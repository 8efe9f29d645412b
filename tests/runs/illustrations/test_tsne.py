import math

import torch

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
