"""ResNet20V2 against the published facts of the Keras network."""

import pytest
import torch

from ccp_dml.errors import UserError
from ccp_dml.models.resnet20v2 import PreActivationBlock, ResNet20V2


def test_size_is_that_of_the_keras_network() -> None:
    backbone = ResNet20V2()
    # Keras counts 570,602 trainable parameters with a classifier of 10 classes on the 256 features.
    assert sum(parameter.numel() for parameter in backbone.parameters()) == 570_602 - (256 * 10 + 10)
    convolutions = [m for m in backbone.modules() if isinstance(m, torch.nn.Conv2d)]
    assert len(convolutions) == 1 + 6 * 3 + 3  # 19 layers on the main path, three projections beside it


def test_feature_maps_of_mnist_and_cifar() -> None:
    backbone = ResNet20V2().eval()
    for side, maps in ((28, 7), (32, 8)):
        output = backbone(torch.zeros(2, 3, side, side, dtype=torch.uint8))
        assert output.shape == (2, backbone.num_features, maps, maps) == (2, 256, maps, maps)


def test_pixels_become_minus_one_to_one() -> None:
    pixels = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 1, 1)
    normalised = ResNet20V2().input_normalisation(pixels)
    torch.testing.assert_close(normalised[:, :, 0, 0], torch.tensor([[-1.0] * 3, [1.0] * 3]))


def test_the_sum_of_a_block_is_not_activated() -> None:
    block = PreActivationBlock(64, 16, 64)
    torch.nn.init.zeros_(block.conv3.weight)
    x = torch.randn(2, 64, 3, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(block(x), x)


def test_the_branch_is_activated_before_each_convolution() -> None:
    block = PreActivationBlock(64, 16, 64).eval()
    negative = -torch.rand(2, 64, 3, 3, generator=torch.Generator().manual_seed(0)) - 0.1
    # Everything is cut off by the first activation, biases are zero: the branch adds nothing.
    assert torch.equal(block(negative), negative)


def test_gradient_reaches_the_first_layer() -> None:
    backbone = ResNet20V2()
    images = torch.randint(0, 256, (2, 3, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    backbone(images).mean().backward()
    assert backbone.stem.weight.grad is not None
    assert backbone.stem.weight.grad.abs().sum() > 0


def test_grey_images_are_not_taken_for_features() -> None:
    with pytest.raises(UserError, match=r"\(2, 1, 32, 32\): give each colour a channel"):
        ResNet20V2()(torch.zeros(2, 1, 32, 32))
