import math

import torch

from ccp_dml.runs.illustrations.tsne import tsne_plane


def test_tsne_keeps_neighbours_and_repeats_itself():
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(3).repeat_interleave(12)
    embeddings = 5 * torch.eye(60)[labels] + 0.1 * torch.randn(36, 60, generator=draw)
    places = tsne_plane(embeddings, seed=1)
    assert places.shape == (36, 2)
    distances = torch.cdist(places, places).fill_diagonal_(math.inf)
    assert torch.equal(labels[distances.argmin(1)], labels)
    assert torch.equal(places, tsne_plane(embeddings, seed=1))
