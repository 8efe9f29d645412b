from dataclasses import replace

import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from ccp_dml.data.transforms import AUGMENTATIONS, apply_seeded, eval_transform, train_transform
from ccp_dml.errors import UserError

STILL = replace(AUGMENTATIONS["mlrc"], crop_area=(1.0, 1.0), aspect=(1.0, 1.0), flip=0.0)


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
    crops = torch.stack(apply_seeded(train_transform(), [image] * 300, range(300))).float()
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
    still = train_transform(resize=64, crop=32, augmentation=STILL)
    flipped = train_transform(resize=64, crop=32, augmentation=replace(STILL, flip=1.0))
    assert still(image).shape == (3, 32, 32)
    assert torch.equal(still(image), flipped(image).flip(2))
    assert still(image)[0, 0, -1] > still(image)[0, 0, 0]
    assert eval_transform(resize=64, crop=32)(image)[0, 0, 0].item() == pytest.approx(64, abs=3)


def test_aspect_of_training_crops_is_settable():
    wide = replace(STILL, crop_area=(0.3, 0.3), aspect=(2.0, 2.0))
    crop = train_transform(augmentation=wide)(gradient(256, 256)).float()
    width, height = crop[0, 113, -1] - crop[0, 113, 0], crop[1, -1, 113] - crop[1, 0, 113]
    assert (width / height).item() == pytest.approx(2.0, abs=0.1)


def test_training_crops_are_cut_from_the_resized_image():
    """Stripes of one pixel are grey once the short side has been halved, and stay so in the crop."""
    stripes = torch.zeros(64, 64, 3, dtype=torch.uint8)
    stripes[:, ::2] = 255
    image = Image.fromarray(stripes.numpy())
    whole = {"crop": 64, "augmentation": STILL}
    assert train_transform(resize=32, **whole)(image)[:, :, 8:-8].float().std() < 5
    assert train_transform(resize=64, **whole)(image)[:, :, 8:-8].float().std() > 100


def test_seed_decides_and_global_state_stays():
    image = gradient(64, 64)
    transform = train_transform(32, 24)
    before = torch.get_rng_state()
    first = apply_seeded(transform, [image, image], [1, 2])
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(1)
    assert not torch.equal(first[0], first[1])
    assert all(map(torch.equal, first[::-1], apply_seeded(transform, [image, image], [2, 1])))


def test_crop_larger_than_the_image_is_an_error():
    with pytest.raises(UserError, match=r"`crop`=300 does not fit into `resize`=256"):
        eval_transform(256, 300)


def test_the_transform_of_mlrc_is_what_caches_of_features_were_made_with():
    """Its `repr` is part of their names: another one would compute every feature again."""
    crop = v2.RandomResizedCrop(227, scale=(0.16, 1.0), ratio=(3 / 4, 4 / 3))
    before = v2.Compose([v2.PILToTensor(), v2.Resize(256), crop, v2.RandomHorizontalFlip(0.5)])
    assert repr(train_transform(256, 227)) == repr(before)


def test_light_augmentation_mirrors_nothing_and_keeps_most_of_the_image():
    plain = train_transform(64, 64, replace(AUGMENTATIONS["light"], colour=0.0))
    crops = torch.stack(apply_seeded(plain, [gradient(64, 64)] * 200, range(200))).float()
    assert (crops[:, 0, 32, 48] > crops[:, 0, 32, 16]).all(), "red must go on growing to the right"
    widths = (crops[:, 0, 32, 56] - crops[:, 0, 32, 8]) / (255 * 48 / 64)
    assert 0.8 < widths.min() < widths.max() < 1.05
    assert not torch.equal(crops[0], crops[1])


@pytest.mark.parametrize("degrees", [10, 45, 120])
def test_turned_images_have_no_black_corners(degrees):
    white = Image.new("RGB", (40, 40), "white")
    turned = apply_seeded(train_transform(32, 32, replace(STILL, turn=degrees)), [white] * 20, range(20))
    assert all((image == 255).all() for image in turned)


def test_images_are_turned_as_far_as_asked_and_no_further():
    stripe = Image.new("RGB", (65, 65))
    stripe.paste("white", (0, 31, 65, 34))
    turned = torch.stack(apply_seeded(train_transform(65, 65, replace(STILL, turn=20.0)), [stripe] * 100, range(100)))
    rows = turned[:, 0].float().argmax(dim=1)  # (100, 65), where the stripe is in each column
    slopes = (rows[:, 52] - rows[:, 12]) / 40
    assert 0.25 < slopes.abs().max() <= 0.40  # tan 20 degrees is 0.364
    assert slopes.min() < 0 < slopes.max()


def test_colours_change_within_their_limit():
    grey = Image.new("RGB", (8, 8), (100, 100, 100))
    changed = apply_seeded(train_transform(8, 8, replace(STILL, colour=0.3)), [grey] * 100, range(100))
    values = torch.stack(changed).float().mean(dim=(1, 2, 3))
    assert 66 <= values.min() < 80  # rounded down up to four times
    assert 120 < values.max() <= 131
