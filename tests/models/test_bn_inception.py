"""BN-Inception against the facts of the published file and an explicit forward pass by name."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ccp_dml.errors import UserError
from ccp_dml.models.bn_inception import BNInception

# Every convolution of bn_inception-52deb4733.pth as written there: name, output channels, input channels, kernel.
PUBLISHED = """
conv1_7x7_s2 64 3 7; conv2_3x3_reduce 64 64 1; conv2_3x3 192 64 3
inception_3a_1x1 64 192 1; inception_3a_3x3_reduce 64 192 1; inception_3a_3x3 64 64 3
inception_3a_double_3x3_reduce 64 192 1; inception_3a_double_3x3_1 96 64 3; inception_3a_double_3x3_2 96 96 3
inception_3a_pool_proj 32 192 1
inception_3b_1x1 64 256 1; inception_3b_3x3_reduce 64 256 1; inception_3b_3x3 96 64 3
inception_3b_double_3x3_reduce 64 256 1; inception_3b_double_3x3_1 96 64 3; inception_3b_double_3x3_2 96 96 3
inception_3b_pool_proj 64 256 1
inception_3c_3x3_reduce 128 320 1; inception_3c_3x3 160 128 3
inception_3c_double_3x3_reduce 64 320 1; inception_3c_double_3x3_1 96 64 3; inception_3c_double_3x3_2 96 96 3
inception_4a_1x1 224 576 1; inception_4a_3x3_reduce 64 576 1; inception_4a_3x3 96 64 3
inception_4a_double_3x3_reduce 96 576 1; inception_4a_double_3x3_1 128 96 3; inception_4a_double_3x3_2 128 128 3
inception_4a_pool_proj 128 576 1
inception_4b_1x1 192 576 1; inception_4b_3x3_reduce 96 576 1; inception_4b_3x3 128 96 3
inception_4b_double_3x3_reduce 96 576 1; inception_4b_double_3x3_1 128 96 3; inception_4b_double_3x3_2 128 128 3
inception_4b_pool_proj 128 576 1
inception_4c_1x1 160 576 1; inception_4c_3x3_reduce 128 576 1; inception_4c_3x3 160 128 3
inception_4c_double_3x3_reduce 128 576 1; inception_4c_double_3x3_1 160 128 3; inception_4c_double_3x3_2 160 160 3
inception_4c_pool_proj 128 576 1
inception_4d_1x1 96 608 1; inception_4d_3x3_reduce 128 608 1; inception_4d_3x3 192 128 3
inception_4d_double_3x3_reduce 160 608 1; inception_4d_double_3x3_1 192 160 3; inception_4d_double_3x3_2 192 192 3
inception_4d_pool_proj 128 608 1
inception_4e_3x3_reduce 128 608 1; inception_4e_3x3 192 128 3
inception_4e_double_3x3_reduce 192 608 1; inception_4e_double_3x3_1 256 192 3; inception_4e_double_3x3_2 256 256 3
inception_5a_1x1 352 1056 1; inception_5a_3x3_reduce 192 1056 1; inception_5a_3x3 320 192 3
inception_5a_double_3x3_reduce 160 1056 1; inception_5a_double_3x3_1 224 160 3; inception_5a_double_3x3_2 224 224 3
inception_5a_pool_proj 128 1056 1
inception_5b_1x1 352 1024 1; inception_5b_3x3_reduce 192 1024 1; inception_5b_3x3 320 192 3
inception_5b_double_3x3_reduce 192 1024 1; inception_5b_double_3x3_1 224 192 3; inception_5b_double_3x3_2 224 224 3
inception_5b_pool_proj 128 1024 1
"""


def published_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for entry in PUBLISHED.replace("\n", ";").strip("; ").split(";"):
        name, channels_out, channels_in, kernel = entry.split()
        width, side = int(channels_out), int(kernel)
        shapes |= {f"{name}.weight": (width, int(channels_in), side, side), f"{name}.bias": (width,)}
        shapes |= {f"{name}_bn.{part}": (width,) for part in ("weight", "bias", "running_mean", "running_var")}
    return shapes


@pytest.fixture(scope="module")
def backbone() -> BNInception:
    """With batch-norm statistics that are not trivial."""
    network = BNInception().eval()
    draw = torch.Generator().manual_seed(0)
    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.running_mean.normal_(std=0.1, generator=draw)  # type: ignore[union-attr]
            layer.running_var.uniform_(0.5, 1.5, generator=draw)  # type: ignore[union-attr]
            torch.nn.init.uniform_(layer.weight, 0.5, 1.5, generator=draw)
            torch.nn.init.normal_(layer.bias, std=0.1, generator=draw)
    return network


def test_names_and_shapes_are_those_of_the_published_file(backbone: BNInception) -> None:
    ours = {
        name: tuple(value.shape)
        for name, value in backbone.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    assert ours == published_shapes()


def test_number_of_parameters(backbone: BNInception) -> None:
    # 11,295,240 with the ImageNet classifier.
    assert sum(value.numel() for value in backbone.parameters()) == 11_295_240 - (1024 * 1000 + 1000)


@pytest.mark.parametrize(("side", "maps"), [(224, 7), (227, 7), (256, 8), (112, 4), (33, 1)])
def test_size_of_feature_maps(backbone: BNInception, side: int, maps: int) -> None:
    with torch.no_grad():
        output = backbone(torch.zeros(1, 3, side, side, dtype=torch.uint8))
    assert output.shape == (1, backbone.num_features, maps, maps) == (1, 1024, maps, maps)


def explicit_forward(state: dict[str, Tensor], images: Tensor) -> Tensor:
    """The network written out over the published names, for sides that Caffe's pooling divides evenly."""

    def unit(name: str, x: Tensor, stride: int = 1) -> Tensor:
        weight = state[f"{name}.weight"]
        y = F.conv2d(x, weight, state[f"{name}.bias"], stride, padding=(weight.shape[-1] - 1) // 2)
        mean, variance, scale, shift = (
            state[f"{name}_bn.{part}"].view(-1, 1, 1) for part in ("running_mean", "running_var", "weight", "bias")
        )
        return ((y - mean) / (variance + 1e-5).sqrt() * scale + shift).clamp(min=0)

    red, green, blue = images.float().unbind(1)
    x = torch.stack([blue - 104, green - 117, red - 128], dim=1)
    x = F.max_pool2d(unit("conv1_7x7_s2", x, stride=2), 3, 2, ceil_mode=True)
    x = F.max_pool2d(unit("conv2_3x3", unit("conv2_3x3_reduce", x)), 3, 2, ceil_mode=True)
    for block in ("3a", "3b", "3c", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
        name = f"inception_{block}"
        stride = 2 if block in ("3c", "4e") else 1
        triple = unit(f"{name}_3x3", unit(f"{name}_3x3_reduce", x), stride)
        double = unit(f"{name}_double_3x3_1", unit(f"{name}_double_3x3_reduce", x))
        double = unit(f"{name}_double_3x3_2", double, stride)
        if stride == 2:
            x = torch.cat([triple, double, F.max_pool2d(x, 3, 2, ceil_mode=True)], dim=1)
            continue
        if block == "5b":
            pooled = F.max_pool2d(x, 3, 1, padding=1)
        else:
            pooled = F.conv2d(x.flatten(0, 1).unsqueeze(1), torch.full((1, 1, 3, 3), 1 / 9), padding=1).view_as(x)
        x = torch.cat([unit(f"{name}_1x1", x), triple, double, unit(f"{name}_pool_proj", pooled)], dim=1)
    return x


def test_forward_pass_against_the_network_written_out(backbone: BNInception) -> None:
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        ours, explicit = backbone(images), explicit_forward(backbone.state_dict(), images)
    assert explicit.abs().max() > 0
    torch.testing.assert_close(ours / explicit.abs().max(), explicit / explicit.abs().max(), atol=1e-5, rtol=1e-4)


def test_float_images_are_on_the_same_scale(backbone: BNInception) -> None:
    images = torch.randint(0, 256, (1, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        assert torch.equal(backbone(images), backbone(images.float()))


def test_features_instead_of_images_are_refused(backbone: BNInception) -> None:
    with pytest.raises(UserError, match=r"\(4, 512\).*choose the backbone identity"):
        backbone(torch.zeros(4, 512))
