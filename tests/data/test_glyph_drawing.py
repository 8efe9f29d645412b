"""Clean drawings of one size, and distortions that leave a glyph readable."""

import numpy as np
import torch

from ccp_dml.data.glyph_drawing import CANVAS, FACES, LARGEST_EXTENT, SIDE, clean_drawing, distort


def extent(drawing):
    rows, columns = np.nonzero(drawing)
    return rows.min(), rows.max(), columns.min(), columns.max()


def test_a_drawing_is_centred_and_of_one_size():
    for character in "Il.W":
        drawing = clean_drawing(character, "DejaVu Sans")
        assert drawing.shape == (CANVAS, CANVAS)
        assert drawing.max() > 200
        top, bottom, left, right = extent(drawing)
        assert abs(max(bottom - top, right - left) + 1 - LARGEST_EXTENT) <= 1
        assert abs(top - (CANVAS - 1 - bottom)) <= 2
        assert abs(left - (CANVAS - 1 - right)) <= 2


def test_faces_differ_and_lack_different_characters():
    assert not np.array_equal(clean_drawing("g", "DejaVu Sans"), clean_drawing("g", "DejaVu Serif"))
    assert all(clean_drawing("g", face) is not None for face in FACES)
    assert clean_drawing("ა", "STIX") is None  # no box in its place


def drawings(characters="AbKx"):
    return torch.from_numpy(np.stack([clean_drawing(one, "DejaVu Sans") for one in characters])).unsqueeze(1)


def distorted(seed, images):
    return distort(images, torch.Generator().manual_seed(seed))


def test_distortions_follow_their_generator():
    images = distorted(0, drawings())
    assert (images.shape, images.dtype) == ((4, 1, SIDE, SIDE), torch.uint8)
    assert torch.equal(images, distorted(0, drawings()))
    assert not torch.equal(images, distorted(1, drawings()))


def test_a_distorted_glyph_is_still_seen():
    """Over many distortions of one glyph, ink and paper differ where the clean drawing says so; empty ones do not."""
    glyph = drawings("H").expand(256, 1, CANVAS, CANVAS)
    small = torch.nn.functional.avg_pool2d(drawings("H").float(), CANVAS // SIDE)[0, 0] / 255

    def contrast(clean):
        images = distorted(3, clean).float()
        inside, outside = images[:, 0, small > 0.9].mean(1), images[:, 0, small == 0].mean(1)
        return (inside - outside).abs().mean()

    assert contrast(glyph) > 3 * contrast(torch.zeros_like(glyph))


def test_ink_is_darker_than_paper_in_about_half_of_the_images():
    glyph = drawings("H").expand(256, 1, CANVAS, CANVAS)
    small = torch.nn.functional.avg_pool2d(drawings("H").float(), CANVAS // SIDE)[0, 0] / 255
    images = distorted(4, glyph).float()
    is_darker = images[:, 0, small > 0.9].mean(1) < images[:, 0, small == 0].mean(1)
    assert 0.35 < is_darker.float().mean() < 0.65
