import pytest
import torch
from PIL import Image

from ccp_dml.data.transforms import apply_seeded, eval_transform, train_transform
from ccp_dml.errors import UserError


def gradient(width: int, height: int) -> Image.Image:
    """Red grows to the right, green grows downwards."""
    red = torch.linspace(0, 255, width).expand(height, width)
    green = torch.linspace(0, 255, height).unsqueeze(1).expand(height, width)
    pixels = torch.stack([red, green, torch.zeros(height, width)], dim=2)
    return Image.fromarray(pixels.round().to(torch.uint8).numpy())


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (60, 40), (1000, 30)])
def test_defaults_give_the_protocols_size_for_any_image(size):
    image = Image.new("RGB", size, (10, 20, 30))
    for transform in (train_transform(), eval_transform()):
        result = transform(image)
        assert result.shape == (3, 227, 227)
        assert result.dtype == torch.uint8
        assert result.float().mean(dim=(1, 2)).tolist() == [10, 20, 30]


def test_evaluation_takes_the_centre_at_short_side_256():
    result = eval_transform()(gradient(512, 256)).float()
    # The centre crop is columns 142.5 .. 369.5 of 512 and rows 14.5 .. 241.5 of 256.
    assert result[0, 0, 0] == pytest.approx(142.5 / 511 * 255, abs=1.5)
    assert result[0, 0, -1] == pytest.approx(369 / 511 * 255, abs=1.5)
    assert result[1, 0, 0] == pytest.approx(14.5 / 255 * 255, abs=1.5)
    assert result[1, -1, 0] == pytest.approx(241 / 255 * 255, abs=1.5)


def test_training_crops_cover_the_range_of_area_and_aspect_and_flip_half_of_the_time():
    image = gradient(256, 256)
    crops = torch.stack(apply_seeded(train_transform(), [image] * 300, seed=0)).float()
    widths = (crops[:, 0, 113, -1] - crops[:, 0, 113, 0]) / 255
    heights = (crops[:, 1, -1, 113] - crops[:, 1, 0, 113]) / 255
    areas, aspects = widths.abs() * heights, widths.abs() / heights
    assert 0.14 < areas.min() < 0.25
    assert 0.85 < areas.max() <= 1.01
    assert 0.70 < aspects.min() < 0.82
    assert 1.22 < aspects.max() < 1.40
    assert 0.4 < (widths < 0).float().mean() < 0.6


def test_settings_reach_the_transform():
    image = gradient(256, 256)
    still = train_transform(resize=64, crop=32, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0)
    flipped = train_transform(resize=64, crop=32, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=1.0)
    assert still(image).shape == (3, 32, 32)
    assert torch.equal(still(image), flipped(image).flip(2))
    assert still(image)[0, 0, -1] > still(image)[0, 0, 0]
    assert eval_transform(resize=64, crop=32)(image)[0, 0, 0].item() == pytest.approx(64, abs=3)


def test_aspect_of_training_crops_is_settable():
    crop = train_transform(scale=(0.3, 0.3), ratio=(2.0, 2.0), flip=0.0)(gradient(256, 256)).float()
    width, height = crop[0, 113, -1] - crop[0, 113, 0], crop[1, -1, 113] - crop[1, 0, 113]
    assert (width / height).item() == pytest.approx(2.0, abs=0.1)


def test_training_crops_are_cut_from_the_resized_image():
    """Stripes of one pixel are grey once the short side has been halved, and stay so in the crop."""
    stripes = torch.zeros(64, 64, 3, dtype=torch.uint8)
    stripes[:, ::2] = 255
    image = Image.fromarray(stripes.numpy())
    whole = {"crop": 64, "scale": (1.0, 1.0), "ratio": (1.0, 1.0)}
    assert train_transform(resize=32, **whole)(image)[:, :, 8:-8].float().std() < 5
    assert train_transform(resize=64, **whole)(image)[:, :, 8:-8].float().std() > 100


def test_seed_decides_and_global_state_stays():
    image = gradient(64, 64)
    transform = train_transform(32, 24)
    before = torch.get_rng_state()
    first = apply_seeded(transform, [image, image], seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(1)
    assert all(map(torch.equal, first, apply_seeded(transform, [image, image], seed=1)))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], apply_seeded(transform, [image], seed=2)[0])


def test_crop_larger_than_the_image_is_an_error():
    with pytest.raises(UserError, match=r"`crop`=300 does not fit into `resize`=256"):
        eval_transform(256, 300)
