"""The embedder: pooling, projection, normalisation, and what it means to be frozen."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ccp_dml.errors import UserError
from ccp_dml.functional.distances import pairwise_distances
from ccp_dml.models.backbones import PrecomputedFeatures, create_backbone
from ccp_dml.models.embedder import (
    FIRST_LENGTH,
    Embedder,
    FeatureScaling,
    ResidualHidden,
    count_features,
    freeze_batch_norm,
    start_as_pca,
)


class TinyBackbone(nn.Module):
    """Images (B, 3, H, W) -> (B, 5, H, W), with the layers whose mode matters."""

    def __init__(self) -> None:
        super().__init__()
        self.num_features = 5
        self.convolution = nn.Conv2d(3, 5, 3, padding=1)
        self.norm = nn.BatchNorm2d(5)
        self.dropout = nn.Dropout(0.5)

    def forward(self, images: Tensor) -> Tensor:
        return self.dropout(self.norm(self.convolution(images)))


class FlatBackbone(nn.Module):
    num_features = 4

    def forward(self, features: Tensor) -> Tensor:
        return features


@pytest.fixture
def images() -> Tensor:
    return torch.randn(6, 3, 4, 5, generator=torch.Generator().manual_seed(1))


def test_gap_and_gmp_against_explicit_loops(images: Tensor) -> None:
    backbone = TinyBackbone().eval()
    maps = backbone(images).detach()
    for pooling in ("gap", "gap+gmp"):
        embedder = Embedder(backbone, 7, pooling).eval()
        expected = torch.empty(6, 5)
        for row in range(6):
            for channel in range(5):
                values = [float(value) for value in maps[row, channel].flatten()]
                expected[row, channel] = sum(values) / len(values) + (max(values) if pooling == "gap+gmp" else 0)
        torch.testing.assert_close(embedder.raw(images), expected @ embedder.linear.weight.T)


def test_flat_features_are_not_pooled() -> None:
    features = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    embedder = Embedder(FlatBackbone(), 2, "gap+gmp")
    torch.testing.assert_close(embedder.raw(features), features @ embedder.linear.weight.T)


def test_clip_leaves_short_embeddings_and_shortens_long_ones() -> None:
    embedder = Embedder(FlatBackbone(), 2)
    with torch.no_grad():
        embedder.linear.weight.copy_(torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0]]))
    features = torch.tensor([[0.3, 0.4, 9, 9], [3.0, 4.0, 9, 9]])
    torch.testing.assert_close(embedder(features), torch.tensor([[0.3, 0.4], [0.6, 0.8]]))
    torch.testing.assert_close(embedder.raw(features), torch.tensor([[0.3, 0.4], [3.0, 4.0]]))


def test_l2_gives_unit_length_to_all() -> None:
    features = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)) * torch.logspace(-2, 2, 8).unsqueeze(1)
    embeddings = Embedder(FlatBackbone(), 3, normalise="l2")(features)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(8))


def test_linear_layer_has_no_bias_and_xavier_weights_from_the_generator() -> None:
    state = torch.get_rng_state()
    first = Embedder(FlatBackbone(), 300, generator=torch.Generator().manual_seed(5))
    again = Embedder(FlatBackbone(), 300, generator=torch.Generator().manual_seed(5))
    other = Embedder(FlatBackbone(), 300, generator=torch.Generator().manual_seed(6))
    assert torch.equal(torch.get_rng_state(), state), "the global random state was used"
    assert torch.equal(first.linear.weight, again.linear.weight)
    assert not torch.equal(first.linear.weight, other.linear.weight)
    assert first.linear.bias is None
    bound = math.sqrt(6 / (4 + 300))
    assert 0.98 * bound < first.linear.weight.abs().max() <= bound


def test_state_dict_is_the_backbone_and_one_matrix() -> None:
    keys = set(Embedder(TinyBackbone(), 2).state_dict())
    assert {key for key in keys if not key.startswith("backbone.")} == {"linear.weight"}


@pytest.mark.parametrize("wrapped", [False, True])
def test_frozen_batch_norm_stays_frozen_in_training_mode(images: Tensor, wrapped: bool) -> None:
    embedder = Embedder(TinyBackbone(), 2)
    # As a strategy's wrapper does: the mode is changed from outside.
    (nn.Sequential(embedder) if wrapped else embedder).eval().train()
    norm = embedder.backbone.norm
    before = norm.running_mean.clone()
    embedder(images).sum().backward()
    assert torch.equal(norm.running_mean, before)
    assert norm.weight.grad is None
    assert norm.bias.grad is None
    assert not norm.training
    assert embedder.backbone.dropout.training, "only batch-norm is frozen"
    assert embedder.backbone.convolution.weight.grad is not None


def test_batch_norm_learns_when_it_is_not_frozen(images: Tensor) -> None:
    embedder = Embedder(TinyBackbone(), 2, freeze_batch_norm=False)
    before = embedder.backbone.norm.running_mean.clone()
    embedder(images).sum().backward()
    assert not torch.equal(embedder.backbone.norm.running_mean, before)
    assert embedder.backbone.norm.weight.grad is not None


def test_freeze_batch_norm_finds_layers_at_any_depth() -> None:
    module = nn.Sequential(nn.Sequential(nn.BatchNorm1d(2), nn.LayerNorm(2)), nn.BatchNorm2d(3), nn.SyncBatchNorm(4))
    freeze_batch_norm(module)
    for layer in (module[0][0], module[1], module[2]):
        assert not layer.training
        assert not any(parameter.requires_grad for parameter in layer.parameters())
    assert module[0][1].training
    assert all(parameter.requires_grad for parameter in module[0][1].parameters())


def test_frozen_backbone_trains_the_head_alone(images: Tensor) -> None:
    embedder = Embedder(TinyBackbone(), 2, freeze_batch_norm=False, freeze_backbone=True)
    embedder.train()
    state = {name: value.clone() for name, value in embedder.backbone.state_dict().items()}
    first, second = embedder.raw(images), embedder.raw(images)
    assert torch.equal(first, second), "dropout is active: the backbone is not in inference mode"
    first.square().sum().backward()
    assert embedder.linear.weight.grad is not None
    assert embedder.linear.weight.grad.abs().sum() > 0
    assert [name for name, value in embedder.named_parameters() if value.requires_grad] == ["linear.weight"]
    for name, value in embedder.backbone.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_frozen_backbone_builds_no_graph(images: Tensor) -> None:
    embedder = Embedder(TinyBackbone(), 2, freeze_backbone=True)
    seen = []
    embedder.backbone.register_forward_hook(lambda _module, _inputs, output: seen.append(output.requires_grad))
    embedder.backbone.convolution.requires_grad_(True)  # by a careless optimiser set-up
    embedder(images)
    assert seen == [False]


def test_below_the_first_stage_that_learns_nothing_changes() -> None:
    embedder = Embedder(create_backbone("test_resnet"), 2, freeze_batch_norm=False, train_from="layer3")
    embedder.train()
    assert not embedder.backbone.network.layer2.training
    assert embedder.backbone.network.layer3.training
    learning = [name for name, value in embedder.named_parameters() if value.requires_grad]
    assert all(name.startswith(("backbone.network.layer3", "backbone.network.layer4", "linear")) for name in learning)
    photos = torch.rand(2, 3, 64, 64) * 255
    with torch.no_grad():
        maps, whole = embedder.eval().maps(photos), embedder.raw(photos)
        embedder.keep_what_learns()
        assert torch.equal(embedder.raw(maps), whole)
    assert [name for name, value in embedder.named_parameters() if value.requires_grad] == learning


def test_a_backbone_is_frozen_as_a_whole_or_in_part() -> None:
    with pytest.raises(UserError, match="both set"):
        Embedder(create_backbone("test_resnet"), 2, freeze_backbone=True, train_from="layer3")


def test_no_grad_is_respected(images: Tensor) -> None:
    embedder = Embedder(TinyBackbone(), 2)
    seen = []
    embedder.backbone.register_forward_hook(lambda _module, _inputs, output: seen.append(output.requires_grad))
    with torch.no_grad():
        assert not embedder.raw(images).requires_grad
    assert seen == [False], "the backbone built a graph"


def test_bf16_autocast_gives_float32_embeddings_and_gradients(images: Tensor) -> None:
    embedder = Embedder(TinyBackbone(), 3)
    embedder.backbone.dropout.p = 0.0
    exact = embedder.raw(images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert embedder.backbone(images).dtype == torch.bfloat16
        rough = embedder.raw(images)
        embeddings = embedder(images)
    assert rough.dtype == embeddings.dtype == torch.float32
    torch.testing.assert_close(rough, exact, atol=0.05, rtol=0.05)
    embeddings.square().sum().backward()
    assert embedder.backbone.convolution.weight.grad is not None
    assert embedder.backbone.convolution.weight.grad.isfinite().all()


def test_maps_are_taken_in_the_precision_of_the_weights() -> None:
    embedder = Embedder(create_backbone("test_resnet"), 2, train_from="layer3").eval()
    with torch.no_grad():
        maps = embedder.maps(torch.rand(2, 3, 64, 64) * 255)
        embedder.keep_what_learns()
        in_single, in_double = embedder.raw(maps), embedder.double().raw(maps)
    assert in_double.dtype == torch.float64
    torch.testing.assert_close(in_double.float(), in_single, rtol=1e-3, atol=1e-4)


def test_double_precision_is_kept() -> None:
    features = torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert Embedder(FlatBackbone(), 2).double()(features).dtype == torch.float64


@pytest.mark.parametrize(
    ("arguments", "named"),
    [({"embedding_dim": 0}, "embedding_dim is 0"), ({"pooling": "gmp"}, "'gmp'"), ({"normalise": "L2"}, "'L2'")],
)
def test_bad_arguments_are_named(arguments: dict[str, object], named: str) -> None:
    with pytest.raises(UserError, match=named):
        Embedder(FlatBackbone(), **{"embedding_dim": 2, **arguments})  # type: ignore[arg-type]


def test_a_module_without_num_features_is_no_backbone() -> None:
    assert count_features(FlatBackbone()) == 4
    with pytest.raises(TypeError, match="Linear is no backbone"):
        Embedder(nn.Linear(3, 3), 2)


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
