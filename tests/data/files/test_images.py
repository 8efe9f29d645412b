import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, UnidentifiedImageError
from torchvision.transforms.v2.functional import pil_to_tensor, resize

from ccp_dml.data.files.images import ImageFiles, decode, decode_pixels, encode_ppm, find_broken, readable
from ccp_dml.data.labelled import LabelledSet
from ccp_dml.data.loading import evaluation_batches
from ccp_dml.data.transforms import eval_transform
from ccp_dml.errors import UserError


def saved(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)
    return path


def colour(path: Path) -> tuple[int, ...]:
    image = decode(path)
    assert image.mode == "RGB"
    return image.getpixel((3, 3))


def test_every_colour_mode_becomes_rgb(tmp_path):
    red = Image.new("RGB", (8, 8), (200, 30, 10))
    assert colour(saved(red, tmp_path / "rgb.png")) == (200, 30, 10)
    assert colour(saved(red.convert("P", palette=Image.Palette.ADAPTIVE), tmp_path / "p.png")) == (200, 30, 10)
    assert colour(saved(red.convert("P", palette=Image.Palette.ADAPTIVE), tmp_path / "p.gif")) == (200, 30, 10)
    assert colour(saved(Image.new("L", (8, 8), 77), tmp_path / "grey.png")) == (77, 77, 77)
    assert colour(saved(Image.new("1", (8, 8), 1), tmp_path / "bits.png")) == (255, 255, 255)
    assert colour(saved(red.convert("RGBA"), tmp_path / "rgba.png")) == (200, 30, 10)
    cmyk = colour(saved(red.convert("CMYK"), tmp_path / "cmyk.jpg", quality=95))
    assert np.abs(np.subtract(cmyk, (200, 30, 10))).max() < 12


def test_sixteen_bit_grey_keeps_its_range(tmp_path):
    for value in (0, 128, 255):
        pixels = np.full((8, 8), value * 257, dtype=np.uint16)
        assert colour(saved(Image.fromarray(pixels), tmp_path / "deep.png")) == (value,) * 3


def test_transparent_parts_become_white(tmp_path):
    clear = Image.new("RGBA", (8, 8), (200, 30, 10, 0))
    assert colour(saved(clear, tmp_path / "clear.png")) == (255, 255, 255)
    palette = Image.new("P", (8, 8), 0)
    assert colour(saved(palette, tmp_path / "clear.gif", transparency=0)) == (255, 255, 255)


def test_exif_orientation_turns_the_image_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise by 90 degrees
    image = Image.new("RGB", (40, 20), "black")
    image.paste("white", (0, 0, 20, 20))
    upright = decode(saved(image, tmp_path / "turned.jpg", exif=exif))
    assert upright.size == (20, 40)
    assert upright.getpixel((10, 5)) > (250, 250, 250)
    assert upright.getpixel((10, 35)) < (5, 5, 5)


def test_source_loads_by_position_with_the_transform_that_the_seed_asks_for(write_images, transforms):
    root = write_images("a.png", "b.png", "c.png")
    source = ImageFiles([root / "a.png", root / "b.png", root / "c.png"], **transforms)
    assert len(source) == 3
    assert not source.in_memory
    loaded = source.load(torch.tensor([2, 0]), None)
    assert loaded.shape == (2, 3, 12, 12)
    assert loaded.dtype == torch.uint8
    assert loaded[:, 0, 0, 0].tolist() == [18, 0]
    assert source.name(1) == str(root / "b.png")
    assert source.picture(1).size == (20, 16)


def test_augmentation_is_a_function_of_each_images_own_seed(tmp_path, transforms):
    noise = Image.effect_noise((40, 40), 80)
    source = ImageFiles([saved(noise, tmp_path / "noise.png")], **transforms)
    twice = torch.tensor([0, 0])
    first = source.load(twice, torch.tensor([5, 6]))
    assert not torch.equal(first[0], first[1])
    assert torch.equal(first.flip(0), source.load(twice, torch.tensor([6, 5])))
    still = source.load(twice, None)
    assert torch.equal(still[0], still[1])
    assert torch.equal(still[0], eval_transform(16, 12)(decode(tmp_path / "noise.png")))


@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_unreadable_image_is_named_with_the_remedy(write_broken, transforms, suffix):
    path = write_broken(f"half.{suffix}")
    with pytest.raises(UserError, match=rf"cannot read the image .*half\.{suffix} \(.+\): .*`skip_broken`=true"):
        ImageFiles([path], **transforms).load(torch.tensor([0]), None)


def test_unreadable_image_is_named_from_workers_too(write_images, write_broken, transforms):
    root, path = write_images("a.png", "b.png"), write_broken("half.png")
    source = ImageFiles([root / "a.png", root / "b.png", path], **transforms)
    data = LabelledSet(source, torch.arange(3), torch.tensor([0, 0, 0]), ("a",))
    with pytest.raises(UserError, match=r"\Acannot read the image .*half\.png \([^\n]+\): [^\n]*\Z"):
        list(evaluation_batches(data, batch_size=1, workers=2))


def test_missing_and_other_files_are_named(tmp_path, transforms):
    (tmp_path / "text.jpg").write_text("no image")
    (tmp_path / "empty.jpg").touch()
    source = ImageFiles([tmp_path / "gone.jpg", tmp_path / "text.jpg", tmp_path / "empty.jpg"], **transforms)
    for position, reason in enumerate([r"gone\.jpg \(there is no such file\)", r"text\.jpg \(not an image\)", "empty"]):
        with pytest.raises(UserError, match=reason):
            source.load(torch.tensor([position]), torch.zeros(1))


@pytest.mark.parametrize("name", ["thin.png", "thin.jpg", "thin.ppm"])
def test_an_image_that_resizing_would_blow_up_counts_as_broken(tmp_path, transforms, name):
    longest = saved(Image.new("RGB", (2, 400)), tmp_path / f"longest-{name}")
    thin = saved(Image.new("RGB", (2, 401)), tmp_path / name)
    source = ImageFiles([longest, thin], **transforms)
    assert source.load(torch.tensor([0]), None).shape == (1, 3, 12, 12)
    for seeds in (None, torch.zeros(1)):
        with pytest.raises(UserError, match=rf"{name} \(of its 2 by 401 pixels, .*; crop it\): .*skip_broken"):
            source.load(torch.tensor([1]), seeds)
    assert list(find_broken(source.paths)) == [1]


def test_broken_files_are_found_and_described(write_images, write_broken):
    root = write_images("a.png", "b.png")
    paths = [root / "a.png", write_broken("half.jpg"), root / "b.png", root / "gone.png"]
    broken = find_broken(paths)
    assert sorted(broken) == [1, 3]
    assert broken[3] == "there is no such file"
    kept, (description,) = readable(paths)
    assert kept == [0, 2]
    assert description.startswith(f"left out 2 of 4 images that cannot be read: {paths[1]} (")
    assert f"{paths[3]} (there is no such file)" in description


def test_long_lists_of_broken_files_are_counted():
    kept, (description,) = readable([Path(f"{i}.png") for i in range(30)])
    assert kept == []
    assert description.endswith("19.png (there is no such file) and 10 more")


def test_nothing_is_said_where_all_files_can_be_read(write_images):
    assert readable([write_images("a.png") / "a.png"]) == ([0], [])


def test_floating_point_grey_is_read_from_black_0_to_white_1(tmp_path):
    Image.fromarray(np.array([[0.0, 0.5, 1.0]], dtype=np.float32)).save(tmp_path / "a.tif")
    assert np.asarray(decode(tmp_path / "a.tif"))[0, :, 0].tolist() == [0, 128, 255]


@pytest.mark.parametrize("values", [[0.0, 200.0], [-0.1, 0.5], [0.1, float("nan")]])
def test_floating_point_grey_of_another_range_is_refused(tmp_path, values):
    Image.fromarray(np.array([values], dtype=np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(ValueError, match=r"not all in 0\.\.1"):
        decode(tmp_path / "a.tif")


def test_thirty_two_bit_integers_have_no_known_white(tmp_path):
    Image.fromarray(np.array([[0, 70000]], dtype=np.int32)).save(tmp_path / "a.tif")
    with pytest.raises(ValueError, match="32-bit integer pixels"):
        decode(tmp_path / "a.tif")


@pytest.mark.parametrize("format", ["EPS", "PDF", "ICO", "TGA"])
def test_content_that_is_none_of_the_allowed_formats_is_no_image(tmp_path, format):
    Image.new("RGB", (8, 8)).save(tmp_path / "picture", format=format)
    (tmp_path / "picture").rename(tmp_path / "picture.png")
    with pytest.raises(UnidentifiedImageError):
        decode(tmp_path / "picture.png")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path, transforms):
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(UserError, match="no regular file"):
        ImageFiles([tmp_path / "pipe.png"], **transforms).load(torch.tensor([0]), None)


def photograph(width: int = 90, height: int = 70, mode: str = "RGB") -> Image.Image:
    """Structure and noise, so that decoders that round differently would give different pixels."""
    random = np.random.default_rng(3)
    coarse = Image.fromarray(random.integers(0, 256, (7, 9, 3), dtype=np.uint8)).resize((width, height))
    return Image.fromarray(
        (np.asarray(coarse) // 2 + random.integers(0, 128, (height, width, 3))).astype(np.uint8)
    ).convert(mode)


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_pixels_are_those_of_the_picture(tmp_path, mode, progressive, subsampling):
    options = {"progressive": progressive, **({"subsampling": subsampling} if mode == "RGB" else {})}
    path = saved(photograph(mode=mode), tmp_path / "photograph.jpg", **options)
    assert torch.equal(decode_pixels(path), pil_to_tensor(decode(path)))


def test_pixels_are_upright_and_opaque_like_the_picture(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    paths = [
        saved(photograph(), tmp_path / "turned.jpg", exif=exif),
        saved(photograph().convert("RGBA"), tmp_path / "clear.png"),
        saved(photograph(), tmp_path / "photograph.webp"),
    ]
    for path in paths:
        assert torch.equal(decode_pixels(path), pil_to_tensor(decode(path)))
        assert torch.equal(decode_pixels(path, side=8), decode_pixels(path)) == (path.suffix != ".jpg")


def test_common_jpeg_files_are_decoded_without_pillow(tmp_path, monkeypatch):
    paths = [saved(photograph(mode=mode), tmp_path / f"{mode}.jpg") for mode in ("RGB", "L")]
    expected = [decode_pixels(path) for path in paths]
    monkeypatch.setattr("ccp_dml.data.files.images.upright_rgb", None)
    assert all(torch.equal(decode_pixels(path), pixels) for path, pixels in zip(paths, expected, strict=True))


def test_plain_pixels_are_read_without_pillow_and_others_with_it(tmp_path, monkeypatch):
    pixels = pil_to_tensor(photograph())
    plain, other = tmp_path / "plain.ppm", tmp_path / "other.ppm"
    plain.write_bytes(encode_ppm(pixels))
    other.write_bytes(encode_ppm(pixels).replace(b"\n", b"\n# a comment\n", 1))
    assert torch.equal(pil_to_tensor(decode(plain)), pixels)
    assert torch.equal(decode_pixels(other), pixels)
    monkeypatch.setattr("ccp_dml.data.files.images.upright_rgb", None)
    assert torch.equal(decode_pixels(plain), pixels)
    with pytest.raises(TypeError):
        decode_pixels(other)
    plain.write_bytes(plain.read_bytes()[:-1])
    with pytest.raises(TypeError):
        decode_pixels(plain)


@pytest.mark.parametrize("keep", [20, 400, 2000, -3])
def test_a_jpeg_that_ends_early_is_refused_wherever_pillow_refuses_it(tmp_path, keep):
    path = saved(photograph(), tmp_path / "cut.jpg")
    path.write_bytes(path.read_bytes()[:keep])
    try:
        expected = pil_to_tensor(decode(path))
    except Exception as error:
        with pytest.raises(type(error)):
            decode_pixels(path)
    else:
        assert torch.equal(decode_pixels(path), expected)


@pytest.mark.parametrize(
    ("side", "shape"), [(None, (340, 420)), (171, (340, 420)), (170, (170, 210)), (86, (170, 210)), (42, (43, 53))]
)
def test_reduced_decoding_keeps_the_side_that_is_needed_and_the_looks(tmp_path, side, shape):
    path = saved(photograph(9, 7).resize((420, 340)), tmp_path / "large.jpg", quality=95)
    pixels = decode_pixels(path, side)
    assert pixels.shape[1:] == shape
    looks = resize(pil_to_tensor(decode(path)), list(shape), antialias=True)
    assert (looks.int() - pixels.int()).abs().float().mean() < 6


def test_reduced_decoding_has_a_signature_of_its_own(tmp_path, transforms):
    path = saved(photograph(), tmp_path / "photograph.jpg")
    signatures = {
        ImageFiles([path], **transforms, decoded_side=side).signature(torch.tensor([0])) for side in (None, 16, 20)
    }
    assert len(signatures) == 3
    full, reduced = (ImageFiles([path], **transforms, decoded_side=side) for side in (None, 16))
    assert not torch.equal(full.load(torch.tensor([0]), None), reduced.load(torch.tensor([0]), None))
