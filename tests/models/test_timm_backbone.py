"""timm's networks as backbones, on the miniatures that timm keeps for tests."""

import logging
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ccp_dml.errors import UserError
from ccp_dml.models.backbones import create_backbone
from ccp_dml.models.timm_backbone import TimmBackbone


def random_images(side: int) -> Tensor:
    return torch.randint(0, 256, (2, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "side", "shape"),
    [
        ("test_resnet", 64, (2, 96, 2, 2)),
        ("test_efficientnet", 96, (2, 256, 3, 3)),
        ("test_convnext", 64, (2, 64, 2, 2)),
        ("test_mambaout", 64, (2, 256, 2, 2)),  # channels last inside
        ("test_vit", 160, (2, 64)),  # tokens
        ("crossvit_tiny_240", 240, (2, 288)),  # tokens of two sizes, in a list
    ],
)
def test_shapes_and_use_of_every_parameter(name: str, side: int, shape: tuple[int, ...]) -> None:
    backbone = TimmBackbone(name)
    features = backbone(random_images(side))
    assert features.shape == shape
    assert backbone.num_features == shape[1]
    features.square().sum().backward()
    # A parameter without gradient would stop training over several processes.
    assert [key for key, value in backbone.named_parameters() if value.grad is None] == []


def test_channels_last_networks_are_turned_round() -> None:
    backbone = TimmBackbone("test_mambaout").eval()
    images = random_images(96)
    maps = backbone.network(backbone.input_normalisation(images))  # (B, h, w, F)
    torch.testing.assert_close(backbone(images).mean(dim=(2, 3)), maps.mean(dim=(1, 2)))


def test_a_network_that_lays_its_maps_out_in_a_row_pools_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def create(_: str, global_pool: str | None, pretrained: bool = False) -> nn.Module:  # noqa: ARG001 as timm's
        pooling = {} if global_pool is None else {"global_pool": global_pool}
        network = timm.models.convmixer.ConvMixer(dim=8, depth=1, num_classes=0, **pooling)
        network.pretrained_cfg = timm.get_pretrained_cfg("convmixer_768_32").to_dict()
        return network

    monkeypatch.setattr("ccp_dml.models.timm_backbone._create", create)
    backbone = TimmBackbone("convmixer_768_32")
    assert backbone.num_features == 8  # not 8 for each of 32 x 32 positions
    assert backbone(random_images(64)).shape == (2, 8)


@pytest.mark.parametrize("name", ["resnet18", "test_resnet"])
def test_images_are_normalised_as_the_weights_expect(name: str) -> None:
    backbone = TimmBackbone(name).eval()
    settings = timm.get_pretrained_cfg(name)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (settings.mean, settings.std))
    images = random_images(64)
    with torch.no_grad():
        expected = backbone.network((images.float() / 255 - mean) / std)
        torch.testing.assert_close(backbone(images), expected, atol=1e-4, rtol=1e-4)


def test_the_two_networks_above_expect_different_means() -> None:
    assert timm.get_pretrained_cfg("resnet18").mean != timm.get_pretrained_cfg("test_resnet").mean


def test_transformer_features_are_those_of_its_own_pooling() -> None:
    backbone = TimmBackbone("test_vit").eval()
    images = random_images(160)
    tokens = backbone.network.forward_features(backbone.input_normalisation(images))
    torch.testing.assert_close(backbone(images), backbone.network.forward_head(tokens, pre_logits=True))


def test_a_size_that_the_network_cannot_take_is_named() -> None:
    with pytest.raises(UserError, match=r"test_vit .* 160 x 160 .* 96 x 96"):
        TimmBackbone("test_vit")(random_images(96))


def test_an_assertion_of_the_network_becomes_a_message_about_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = TimmBackbone("test_resnet")

    def refuse(_images: Tensor) -> Tensor:
        raise AssertionError("not divisible by the window")

    monkeypatch.setattr(backbone.network, "forward", refuse)
    with pytest.raises(UserError, match=r"test_resnet .* does not take 50 x 50"):
        backbone(random_images(50))


def test_published_file_loads_without_its_classifier(tmp_path: Path) -> None:
    published = timm.create_model("test_resnet", num_classes=1000).eval()
    save_file(published.state_dict(), tmp_path / "w.safetensors")
    backbone = create_backbone("test_resnet", weights=tmp_path / "w.safetensors").eval()
    images = random_images(64)
    with torch.no_grad():
        expected = published.forward_features(backbone.get_submodule("input_normalisation")(images))
        torch.testing.assert_close(backbone(images), expected)


def test_file_of_another_network_is_refused(tmp_path: Path) -> None:
    torch.save(timm.create_model("test_efficientnet").state_dict(), tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"w\.pth does not hold the weights of test_resnet: .* missing .* unexpected"):
        create_backbone("test_resnet", weights=tmp_path / "w.pth")


def test_failing_download_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    create_model = timm.create_model

    def offline(name: str, pretrained: bool, **arguments: object) -> nn.Module:
        if pretrained:
            raise OSError("Name or service not known\nand forty more lines")
        return create_model(name, **arguments)

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(UserError, match=r"test_resnet .* \(OSError: Name or service not known\).*`weights`=FILE$"):
        create_backbone("test_resnet", pretrained=True)


def test_download_is_asked_for_the_network_without_pooling(monkeypatch: pytest.MonkeyPatch) -> None:
    create_model, asked = timm.create_model, []

    def online(name: str, pretrained: bool, **arguments: object) -> nn.Module:
        if pretrained:
            asked.append({"name": name, **arguments})
        network = create_model(name, **arguments)
        if pretrained:
            nn.init.constant_(network.get_parameter("conv1.0.weight"), 0.125)
        return network

    monkeypatch.setattr(timm, "create_model", online)
    backbone = create_backbone("test_resnet", pretrained=True)
    assert asked == [{"name": "test_resnet", "num_classes": 0, "global_pool": ""}]
    assert (backbone.get_parameter("network.conv1.0.weight") == 0.125).all()


def test_retries_of_the_hub_are_not_printed(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    create_model = timm.create_model
    hub = logging.getLogger("huggingface_hub")
    before = hub.level

    def offline(name: str, pretrained: bool, **arguments: object) -> nn.Module:
        if pretrained:
            logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry 1/5].")
            raise OSError("offline")
        return create_model(name, **arguments)

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(UserError, match="could not be fetched"):
        create_backbone("test_resnet", pretrained=True)
    assert "Retrying" not in caplog.text
    assert hub.level == before
