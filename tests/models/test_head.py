"""How a head starts: PCA against numpy, whitening, and what cannot work."""

import numpy as np
import pytest
import torch
from torch import nn

from ccp_dml.errors import UserError
from ccp_dml.functional.distances import pairwise_distances
from ccp_dml.models.backbones import PrecomputedFeatures
from ccp_dml.models.embedder import FIRST_LENGTH, Embedder, FeatureScaling, ResidualHidden, start_as_pca


@pytest.fixture
def features():
    mixing = torch.randn(7, 7, generator=torch.Generator().manual_seed(1)) * torch.tensor([9.0, 5, 4, 3, 2, 1, 0.5])
    return torch.randn(300, 7, generator=torch.Generator().manual_seed(2)) @ mixing.T + 20


def started(features, dim, whiten):
    linear, scaling = nn.Linear(features.shape[1], dim, bias=False), FeatureScaling(features.shape[1])
    start_as_pca(linear, scaling, features, whiten=whiten)
    return linear(scaling(features)).detach(), scaling


@pytest.mark.parametrize("whiten", [False, True])
def test_embeddings_are_the_principal_components(features, whiten):
    embeddings, _ = started(features, 3, whiten)
    centred = features.double().numpy() - features.double().numpy().mean(axis=0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    expected = left[:, :3] * (1.0 if whiten else singular[:3])
    expected *= FIRST_LENGTH / np.sqrt(np.square(expected).sum(axis=1).mean())
    signs = np.sign((expected * embeddings.numpy()).sum(axis=0))
    assert np.allclose(embeddings.numpy(), expected * signs, atol=1e-4)


def test_all_of_pca_is_a_rotation(features):
    embeddings, scaling = started(features, 7, whiten=False)
    factor = pairwise_distances(embeddings, embeddings) / pairwise_distances(scaling(features), scaling(features))
    assert torch.allclose(factor[~torch.eye(300, dtype=torch.bool)], torch.tensor(FIRST_LENGTH), atol=1e-3)


def test_whitened_directions_vary_equally_and_by_themselves(features):
    embeddings, _ = started(features, 5, whiten=True)
    covariance = embeddings.T @ embeddings / len(embeddings)
    assert torch.allclose(covariance, torch.eye(5) * FIRST_LENGTH**2 / 5, atol=1e-3)


def test_the_unit_of_the_features_does_not_matter(features):
    embeddings, _ = started(features, 4, whiten=False)
    others, _ = started(features * 1000 - 5, 4, whiten=False)
    assert torch.allclose(embeddings, others, atol=1e-3)


@pytest.mark.parametrize("whiten", [False, True])
def test_more_dimensions_than_there_are_directions(features, whiten):
    flat = features.clone()
    flat[:, 3:] = 1.0  # three directions are left
    embeddings, _ = started(flat, 5, whiten)
    main, _ = started(flat, 3, whiten)
    factor = embeddings[:, :3].norm() / main.norm()
    assert torch.allclose(embeddings[:, :3], factor * main, atol=1e-4)
    assert (embeddings[:, 3:].std(dim=0) > 0).all(), "a dimension that is zero everywhere would never learn"
    assert embeddings.square().sum(dim=1).mean().sqrt() == pytest.approx(FIRST_LENGTH, rel=1e-4)


def test_features_that_are_not_finite(features):
    features[3, 1] = torch.inf
    with pytest.raises(UserError, match="not finite"):
        started(features, 2, whiten=False)


def test_features_that_are_all_the_same():
    with pytest.raises(UserError, match="all the same"):
        started(torch.ones(9, 4), 2, whiten=False)


def test_a_hidden_layer_adds_nothing_at_first_and_learns():
    generator = torch.Generator().manual_seed(0)
    layer, inputs = ResidualHidden(6, 4, generator), torch.randn(5, 6, generator=generator)
    assert torch.equal(layer(inputs), inputs)
    layer(inputs).square().sum().backward()
    assert layer.outwards.weight.grad.abs().max() > 0
    with torch.no_grad():
        layer.outwards.weight += 0.1
    assert not torch.allclose(layer(inputs), inputs)


def test_an_embedder_uses_its_scaling_and_hidden_layer():
    plain = Embedder(PrecomputedFeatures(6), 2)
    network = Embedder(PrecomputedFeatures(6), 2, scale_features=True, hidden_dim=3)
    inputs = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(network.linear.weight, plain.linear.weight)
    assert torch.equal(network.raw(inputs), plain.raw(inputs))
    network.scaling.centre += 1.0
    network.scaling.scale *= 2.0
    assert torch.allclose(network.raw(inputs), plain.raw((inputs - 1) / 2))
    assert set(network.state_dict()) == {
        "linear.weight",
        "scaling.centre",
        "scaling.scale",
        "hidden.inwards.weight",
        "hidden.inwards.bias",
        "hidden.outwards.weight",
    }
