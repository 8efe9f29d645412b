"""Backbones by name: the registry, seeds, and names that are refused."""

from pathlib import Path

import pytest
import timm
import torch
from torch import nn

from ccp_dml.errors import UserError
from ccp_dml.models.backbones import BACKBONES, create_backbone, list_backbones
from ccp_dml.models.bn_inception import BNInception
from ccp_dml.models.embedder import Embedder, count_features
from ccp_dml.models.timm_backbone import TimmBackbone


def same_weights(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


@pytest.mark.parametrize("name", ["bn_inception", "resnet20v2", "test_resnet"])
def test_the_seed_alone_decides_the_weights(name: str) -> None:
    state = torch.get_rng_state()
    first = create_backbone(name, seed=3)
    assert torch.equal(torch.get_rng_state(), state), "the global random state was left changed"
    torch.rand(5)
    assert same_weights(first, create_backbone(name, seed=3))
    assert not same_weights(first, create_backbone(name, seed=4))


def test_every_network_of_ours_takes_images_and_states_its_width() -> None:
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for name in BACKBONES:
        backbone = create_backbone(name).eval()
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            assert Embedder(backbone, 4).eval()(images).isfinite().all(), name
        assert backbone(images).shape[1] == count_features(backbone), name


def test_list_has_ours_and_timms() -> None:
    names = list_backbones()
    assert names[: len(BACKBONES)] == list(BACKBONES)
    assert {"bn_inception", "resnet20v2", "identity", "resnet50", "vit_base_patch16_224"} <= set(names)
    assert len(names) == len(set(names))


def test_a_timm_name_may_carry_a_tag() -> None:
    tagged = timm.list_models("test_resnet.*", pretrained=True)[0]
    backbone = create_backbone(tagged)
    assert isinstance(backbone, TimmBackbone)
    assert backbone.network.pretrained_cfg["tag"] == tagged.partition(".")[2]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bninception", "there is no backbone 'bninception'; did you mean 'bn_inception'"),
        ("resnet5", "did you mean .*resnet50"),
        ("///", "ccp list backbones"),
        ("resnet50.tv_in2k", "'resnet50' has no weights called 'tv_in2k'; did you mean 'resnet50.tv_in1k'"),
        ("bn_inception.caffe", "choose 'bn_inception' without a tag"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        create_backbone(name)


def test_identity_passes_features_through() -> None:
    backbone = create_backbone("identity", feature_dim=6)
    features = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(backbone(features), features)
    assert count_features(backbone) == 6


@pytest.mark.parametrize(
    "inputs",
    [torch.zeros(4, 5), torch.zeros(4, 6, 8, 8), torch.zeros(4, 6, dtype=torch.int64)],
    ids=["5", "img", "int"],
)
def test_identity_refuses_everything_but_its_features(inputs: torch.Tensor) -> None:
    with pytest.raises(UserError, match=r"takes features \(batch, 6\)"):
        create_backbone("identity", feature_dim=6)(inputs)


def test_identity_needs_features() -> None:
    with pytest.raises(UserError, match="choose a network for images"):
        create_backbone("identity")
    with pytest.raises(UserError, match="has no weights"):
        create_backbone("identity", feature_dim=2, weights=Path("w.pth"))


def test_published_bn_inception_file_loads_without_its_classifier(tmp_path: Path) -> None:
    state = BNInception().state_dict()
    published = {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")}
    classifier = {"last_linear.weight": torch.zeros(1000, 1024), "last_linear.bias": torch.zeros(1000)}
    torch.save({**published, **classifier}, tmp_path / "bn.pth", _use_new_zipfile_serialization=False)
    assert same_weights_by_name(create_backbone("bn_inception", weights=tmp_path / "bn.pth"), published)


def same_weights_by_name(backbone: nn.Module, expected: dict[str, torch.Tensor]) -> bool:
    state = backbone.state_dict()
    return all(torch.equal(state[name], value) for name, value in expected.items())


def test_pretrained_weights_of_ours_are_not_fetched() -> None:
    with pytest.raises(UserError, match=r"bn_inception-52deb4733\.pth.*`weights`=FILE"):
        create_backbone("bn_inception", pretrained=True)
    for name in ("resnet20v2", "identity"):
        with pytest.raises(UserError, match=f"no pretrained weights of {name}"):
            create_backbone(name, pretrained=True, feature_dim=3)


def test_two_sources_of_weights_are_one_too_many(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="both set"):
        create_backbone("test_resnet", pretrained=True, weights=tmp_path / "w.pth")


def test_another_input_normalisation_takes_the_place_of_the_own():
    images = torch.full((1, 3, 32, 32), 51, dtype=torch.uint8)
    own = create_backbone("resnet20v2")
    other = create_backbone("resnet20v2", input_mean=(0.2, 0.1, 0.0), input_std=(0.5, 0.5, 0.2))
    torch.testing.assert_close(own.input_normalisation(images)[0, :, 0, 0], torch.full((3,), -0.6))
    torch.testing.assert_close(other.input_normalisation(images)[0, :, 0, 0], torch.tensor([0.0, 0.2, 1.0]))


def test_half_an_input_normalisation_is_refused():
    with pytest.raises(UserError, match=r"`input_mean` and `input_std`"):
        create_backbone("resnet20v2", input_mean=(0.5, 0.5, 0.5))
    with pytest.raises(UserError, match="small_cnn"):
        create_backbone("small_cnn", input_mean=(0.5, 0.5, 0.5), input_std=(0.5, 0.5, 0.5))
