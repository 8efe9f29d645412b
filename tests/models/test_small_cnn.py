import pytest
import torch

from ccp_dml.errors import UserError
from ccp_dml.models.small_cnn import ResidualBlock, SmallCNN, SmallMapConv, standardise


def pictures(count: int, side: int = 32) -> torch.Tensor:
    return torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_feature_maps() -> None:
    backbone = SmallCNN()
    assert backbone(pictures(2)).shape == (2, backbone.num_features, 1, 1)
    assert backbone(pictures(2, 64)).shape == (2, backbone.num_features, 3, 3)
    assert backbone(pictures(2, 17)).shape == (2, backbone.num_features, 1, 1)


def test_the_same_seed_gives_the_same_weights() -> None:
    first, again = (torch.random.fork_rng(devices=[]) for _ in range(2))
    with first:
        torch.manual_seed(3)
        one = SmallCNN().state_dict()
    with again:
        torch.manual_seed(3)
        other = SmallCNN().state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_brightness_and_contrast_say_nothing() -> None:
    image = pictures(1).float()
    standard = standardise(image)
    torch.testing.assert_close(standard.mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    assert 0.95 < standard.std() < 1
    torch.testing.assert_close(standardise(image / 2 + 60), standard, atol=0.1, rtol=0)


def test_an_empty_image_is_finite() -> None:
    empty = torch.full((1, 3, 32, 32), 7, dtype=torch.uint8)
    assert standardise(empty).abs().max() == 0
    assert torch.isfinite(SmallCNN()(empty)).all()


def test_images_do_not_influence_one_another() -> None:
    backbone, images = SmallCNN().train(), pictures(4)
    torch.testing.assert_close(backbone(images)[:1], backbone(images[:1]))


def test_training_and_inference_are_the_same_function() -> None:
    backbone, images = SmallCNN(), pictures(3)
    assert torch.equal(backbone.train()(images), backbone.eval()(images))


def test_a_block_begins_as_the_identity_of_activated_maps() -> None:
    x = torch.rand(2, 16, 5, 5)
    assert torch.equal(ResidualBlock(16)(x), x)


def test_features_begin_about_as_long_as_the_unit_ball() -> None:
    norms = SmallCNN()(pictures(8)).flatten(1).norm(dim=1)
    assert ((norms > 0.5) & (norms < 2)).all()


def test_gradient_reaches_the_first_layer() -> None:
    backbone = SmallCNN()
    backbone(pictures(4)).square().sum(1).sqrt().sum().backward()
    gradient = next(backbone.parameters()).grad
    assert gradient is not None
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize("shape", [(2, 128), (2, 1, 32, 32), (2, 3, 16, 32)])
def test_other_inputs_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="small_cnn takes images"):
        SmallCNN()(torch.zeros(shape))


def test_weights_in_double_precision_compute_in_double_precision() -> None:
    network = SmallCNN().double()
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    features = network(images)
    assert features.dtype == torch.float64
    assert not torch.equal(features, features.float().double())


@pytest.mark.parametrize(("kernel", "padding"), [(2, 0), (3, 1)])
@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (5, 5)])
def test_convolutions_of_small_maps_are_convolutions(kernel: int, padding: int, shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    layer = SmallMapConv(6, kernel, padding).double()
    plain = torch.nn.Conv2d(6, 6, kernel, padding=padding, bias=False).double()
    plain.load_state_dict(layer.state_dict())  # the same parameters, and nothing else is saved
    maps = torch.randn(3, 6, *shape, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn_like(plain(maps))
    torch.testing.assert_close(layer(maps), plain(maps))
    for found, expected in zip(
        torch.autograd.grad(layer(maps), (maps, layer.weight), upstream),
        torch.autograd.grad(plain(maps), (maps, plain.weight), upstream),
        strict=True,
    ):
        torch.testing.assert_close(found, expected)


def test_small_maps_have_second_derivatives() -> None:
    torch.manual_seed(0)
    layer = SmallMapConv(2, 3, 1).double()
    maps = torch.randn(2, 2, 2, 2, dtype=torch.float64, requires_grad=True)

    def convolved(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, {"weight": weight}, (x,))

    assert torch.autograd.gradgradcheck(convolved, (maps, layer.weight))


def test_small_maps_in_mixed_precision() -> None:
    torch.manual_seed(0)
    layer, maps = SmallMapConv(4, 3, 1), torch.randn(2, 4, 2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = layer(maps)
    assert output.dtype == torch.bfloat16
    output.sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_in_half_precision_compute_in_half_precision(dtype: torch.dtype) -> None:
    images = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    network = SmallCNN()
    whole = network(images)
    halves = network.to(dtype)(images)
    assert halves.dtype == dtype
    torch.testing.assert_close(halves.float(), whole, atol=0.02, rtol=0.1)
