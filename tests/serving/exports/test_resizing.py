"""The graph gives the pixels of the preprocessing, bit for bit."""

import numpy as np
import pytest
import torch
from PIL import Image

from ccp_dml.serving.exports.resizing import ResizeAndCrop
from ccp_dml.serving.preprocessing import GreyPreprocessing, PhotoPreprocessing

SIZES = [
    (40, 36),
    (36, 40),
    (300, 400),
    (417, 281),
    (256, 256),
    (31, 200),
    (200, 31),
    (1000, 333),
    (7, 5),
    (2100, 1600),
]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("resize", "crop"), [(256, 227), (36, 32), (182, 160), (64, 64)])
def test_photos(size, resize, crop):
    pixels = np.random.default_rng(0).integers(0, 256, size=(*size, 3), dtype=np.uint8)
    expected = PhotoPreprocessing(resize, crop).load(pixels)
    found = ResizeAndCrop(resize, crop, grey=False)(torch.from_numpy(pixels)[None])
    assert torch.equal(found[0], expected.float())


@pytest.mark.parametrize("size", [(32, 32), (28, 28), (64, 50), (20, 33)], ids=str)
def test_grey_images(size):
    pixels = np.random.default_rng(0).integers(0, 256, size=(2, *size, 3), dtype=np.uint8)
    own = GreyPreprocessing(32)
    found = ResizeAndCrop(32, 32, grey=True)(torch.from_numpy(pixels))
    assert torch.equal(found, torch.stack([own.load(Image.fromarray(one)) for one in pixels]).float())


def test_long_thin_images_need_no_more_than_the_part_that_is_kept():
    pixels = np.random.default_rng(0).integers(0, 256, size=(20_000, 1, 3), dtype=np.uint8)
    expected = PhotoPreprocessing(36, 32).load(pixels[9_980:10_020])
    found = ResizeAndCrop(36, 32, grey=False)(torch.from_numpy(pixels)[None])
    assert torch.equal(found[0], expected.float())
