"""How an item becomes a network input, and how that is written down."""

import numpy as np
import pytest
import torch
from PIL import Image

from ccp_dml.config.schema import DataConfig
from ccp_dml.data.files.images import decode, picture_of
from ccp_dml.data.transforms import eval_transform
from ccp_dml.errors import UserError
from ccp_dml.serving.preprocessing import (
    GreyPreprocessing,
    PhotoPreprocessing,
    VectorPreprocessing,
    as_values,
    from_values,
    name_of,
    preprocessing_of,
    unusable,
)


@pytest.fixture
def large_photo(tmp_path):
    """A smooth photo of 400 x 320 pixels."""
    coarse = np.random.default_rng(0).integers(0, 256, size=(5, 6, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize((400, 320), Image.Resampling.BICUBIC).save(tmp_path / "a.jpg", quality=95)
    return tmp_path / "a.jpg"


def test_a_photo_goes_through_the_transform_of_evaluations(large_photo):
    own = PhotoPreprocessing(36, 32)
    expected = eval_transform(36, 32)(decode(large_photo))
    assert torch.equal(own.load(large_photo), expected)
    assert torch.equal(own.load(str(large_photo)), expected)
    assert torch.equal(own.load(Image.open(large_photo)), expected)
    assert torch.equal(own.load(np.asarray(Image.open(large_photo))), expected)


def test_decoded_at_reduced_size_it_is_almost_the_same(large_photo):
    plain = PhotoPreprocessing(36, 32).load(large_photo).float()
    reduced = PhotoPreprocessing(36, 32, reduced_decoding=True).load(large_photo).float()
    assert not torch.equal(plain, reduced)
    assert (plain - reduced).abs().mean() < 3
    small = PhotoPreprocessing(200, 160)  # needs more than half of the photo
    assert torch.equal(PhotoPreprocessing(200, 160, reduced_decoding=True).load(large_photo), small.load(large_photo))


def test_grey_images_have_three_equal_channels():
    made = GreyPreprocessing(28).load(Image.new("RGB", (56, 70), (10, 200, 30)))
    assert made.shape == (3, 28, 28)
    assert torch.equal(made[0], made[2])
    assert int(made[0, 0, 0]) == Image.new("RGB", (1, 1), (10, 200, 30)).convert("L").getpixel((0, 0))


def test_vectors_stay_as_they_are():
    own = VectorPreprocessing(3)
    assert own.load(np.array([1, 2, 3])).tolist() == [1.0, 2.0, 3.0]
    for wrong, why in (([1.0, 2.0], "vectors of 3 numbers"), ([1.0, np.nan, 0.0], "NaN"), ("a.jpg", "not images")):
        with pytest.raises(ValueError, match=why):
            own.load(wrong)


@pytest.mark.parametrize(
    "preprocessing",
    [PhotoPreprocessing(256, 224), PhotoPreprocessing(256, 224, True), GreyPreprocessing(32), VectorPreprocessing(7)],
)
def test_values_are_read_again(preprocessing):
    assert from_values(as_values(preprocessing)) == preprocessing


def test_values_name_only_what_is_switched_on():
    assert as_values(PhotoPreprocessing(256, 224)) == {"kind": "photo", "resize": 256, "crop": 224}
    for values in ({"kind": "sound"}, {"kind": "photo", "resize": 3}, {"kind": "grey", "side": "wide"}, {}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            from_values(values)


def test_it_is_what_the_run_did():
    data = DataConfig(name="folder", resize=100, crop=90)
    assert preprocessing_of(data, None) == PhotoPreprocessing(100, 90)
    reduced = data.model_copy(update={"reduced_decoding": True})
    assert preprocessing_of(reduced, None) == PhotoPreprocessing(100, 90, reduced_decoding=True)
    assert preprocessing_of(DataConfig(name="mnist"), None) == GreyPreprocessing(28)
    assert preprocessing_of(DataConfig(name="features"), 512) == VectorPreprocessing(512)


@pytest.mark.parametrize(
    "wrong", [3, np.zeros((4, 4), np.float32), np.zeros((4, 4, 4), np.uint8), np.zeros((0, 4), np.uint8)]
)
def test_what_is_no_picture_says_what_would_be(wrong):
    with pytest.raises(ValueError, match=r"uint8|is empty"):
        picture_of(wrong)


def test_messages_name_an_item(large_photo):
    assert name_of(large_photo, 3) == str(large_photo)
    assert name_of(np.zeros(2), 3) == "ndarray at position 3"
    alone, among_others = (unusable(items, 0, FileNotFoundError()) for items in (["a.jpg"], ["a.jpg", "b.jpg"]))
    for error in (alone, among_others):
        assert isinstance(error, UserError)
        assert "cannot embed a.jpg (there is no such file)" in str(error)
    assert "skip" in str(among_others)
    assert "skip" not in str(alone)  # nothing would be left
