from dataclasses import replace

import pytest
import torch
from PIL import Image

from ccp_dml.data.files.images import ImageReading, decode
from ccp_dml.data.published import image_cache
from ccp_dml.data.published.cub import CUB, read_cub
from ccp_dml.data.published.image_cache import build_cache, through_cache
from ccp_dml.data.published.published_set import load_published
from ccp_dml.data.transforms import eval_transform, train_transform
from ccp_dml.errors import UserError

NAMES = ("099.Ovenbird", "100.Brown_Pelican", "101.White_Pelican", "102.Western_Wood_Pewee")


@pytest.fixture
def birds(tmp_path):
    """Landscape, portrait and small images, one of them a PNG."""
    sizes = [(90, 61), (61, 90), (20, 16)]
    for number, name in enumerate(NAMES):
        (tmp_path / name).mkdir()
        for image, size in enumerate(sizes):
            pixels = torch.linspace(0, 255, size[0] * size[1] * 3).reshape(size[1], size[0], 3).to(torch.uint8).numpy()
            suffix = "png" if (number, image) == (1, 0) else "jpg"
            Image.fromarray(pixels).save(tmp_path / name / f"{image}.{suffix}")
    return tmp_path


def silent(*_):
    pass


def test_short_side_and_names(birds):
    reports = []
    folder = build_cache(read_cub(birds), birds, 32, lambda *report: reports.append(report))
    assert folder == birds / "cached-32"
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*") if path.is_file()) == sorted(
        f"{name}/{image}.{'png.jpg' if (name, image) == (NAMES[1], 0) else 'jpg'}"
        for name in NAMES
        for image in range(3)
    )
    sizes = [decode(folder / NAMES[0] / f"{image}.jpg").size for image in range(3)]
    assert sizes == [(47, 32), (32, 47), (20, 16)]  # 90 * 32 / 61 = 47.2; small ones stay as they are
    assert reports[-1] == (12, 12)
    assert not list(birds.glob("*.part")) + list(birds.glob(".*"))


def test_training_reads_the_cache_and_sees_nearly_the_same(birds):
    build_cache(read_cub(birds), birds, 32, silent)
    reading = ImageReading(train_transform(32, 28), eval_transform(32, 28))
    original, cached = (load_published(CUB, birds, reading, cached_side=side) for side in (None, 32))
    assert cached.train.class_names == original.train.class_names
    assert cached.train.labels.tolist() == original.train.labels.tolist()
    assert all("cached-32" in path.parts for path in cached.train.source.paths)
    rows = torch.tensor([0, 1])
    difference = (original.train.load(rows).float() - cached.train.load(rows).float()).abs()
    assert difference.mean() < 6


def test_training_sees_exactly_the_same_through_a_cache_of_pixels(birds):
    build_cache(read_cub(birds), birds, 32, silent)
    folder = build_cache(read_cub(birds), birds, 32, silent, as_pixels=True)
    assert folder == birds / "cached-32-pixels"
    assert (folder / NAMES[1] / "0.png.ppm").is_file()
    reading = ImageReading(train_transform(32, 28), eval_transform(32, 28))
    original, cached = (load_published(CUB, birds, reading, cached_side=side) for side in (None, 32))
    assert all("cached-32-pixels" in path.parts for path in cached.train.source.paths)
    rows = torch.arange(len(original.train))
    assert torch.equal(original.train.load(rows), cached.train.load(rows))
    sizes = [decode(folder / NAMES[0] / f"{image}.jpg.ppm").size for image in range(3)]
    assert sizes == [(47, 32), (32, 47), (20, 16)]


def test_the_smallest_cache_that_is_large_enough(birds):
    for side in (24, 32, 48):
        build_cache(read_cub(birds), birds, side, silent)
    chosen = {side: through_cache(read_cub(birds), birds, side).base.name for side in (20, 24, 30, 48)}
    assert chosen == {20: "cached-24", 24: "cached-24", 30: "cached-32", 48: "cached-48"}
    build_cache(read_cub(birds), birds, 40, silent, as_pixels=True)
    assert through_cache(read_cub(birds), birds, 30).base.name == "cached-32"
    assert through_cache(read_cub(birds), birds, 40).base.name == "cached-40-pixels"
    with pytest.raises(UserError, match=r"no image cache for `resize`=49 \(only 24, 32, 40, 48\): .*--cache 49"):
        through_cache(read_cub(birds), birds, 49)


def test_no_cache(birds):
    with pytest.raises(UserError, match=r"no image cache for `resize`=32 \(none\): .*ccp data prepare NAME --root"):
        through_cache(read_cub(birds), birds, 32)


def test_interrupted_cache_goes_on_and_is_not_used_before_it_is_whole(birds, monkeypatch):
    stored = []

    def decode_five(path):
        if len(stored) == 5:
            raise KeyboardInterrupt
        stored.append(path)
        return decode(path)

    monkeypatch.setattr(image_cache.os, "cpu_count", lambda: 1)
    monkeypatch.setattr(image_cache, "decode", decode_five)
    with pytest.raises(KeyboardInterrupt):
        build_cache(read_cub(birds), birds, 32, silent)
    assert not (birds / "cached-32").exists()

    resumed = []
    monkeypatch.setattr(image_cache, "decode", lambda path: resumed.append(path) or decode(path))
    build_cache(read_cub(birds), birds, 32, silent)
    assert len(resumed) == 7
    assert not set(resumed) & set(stored)
    assert through_cache(read_cub(birds), birds, 32).missing == []


@pytest.mark.parametrize("as_pixels", [False, True])
def test_images_that_were_missing_are_added_to_the_cache_once_they_are_there(birds, as_pixels):
    whole, late = read_cub(birds), birds / NAMES[2] / "1.jpg"
    content = late.read_bytes()
    late.unlink()
    folder = build_cache(replace(whole), birds, 32, silent, as_pixels=as_pixels)  # which looks at the files anew
    assert [path.name.split(".")[0] for path in through_cache(whole, birds, 32).missing] == ["1"]
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.*") if path.is_file()}
    late.write_bytes(content)
    build_cache(replace(whole), birds, 32, silent, as_pixels=as_pixels)
    assert through_cache(whole, birds, 32).missing == []
    assert {path: path.stat().st_mtime_ns for path in before} == before, "those that are there stay"


def test_unreadable_image_is_named(birds):
    (birds / NAMES[2] / "1.jpg").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"cannot read the image .*101\.White_Pelican/1\.jpg \(not an image\)"):
        build_cache(read_cub(birds), birds, 32, silent)
    assert not (birds / "cached-32").exists()
