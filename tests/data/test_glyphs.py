import os
import tempfile
import unicodedata

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ccp_dml.data import glyphs
from ccp_dml.data.glyph_drawing import FACES, SIDE, clean_drawing
from ccp_dml.data.glyphs import CHARACTERS, CLASSES, draw, load_glyphs

FEW = 2  # images per class, enough for what these tests look at


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def halves(cache):
    return load_glyphs(FEW, cache)


@pytest.fixture(scope="module")
def clean_drawings():
    """(classes, faces, pixels) unit vectors of slightly blurred drawings; zero where a face lacks the character."""
    blank = np.zeros((64, 64), dtype=np.uint8)
    drawn = [[clean_drawing(c, face) for face in FACES] for c in CHARACTERS]
    stacked = torch.from_numpy(np.stack([[blank if d is None else d for d in row] for row in drawn])).float()
    blurred = F.avg_pool2d(F.avg_pool2d(stacked, 2), 3, stride=1, padding=1)
    return F.normalize(blurred.flatten(2), dim=2)


def test_halves_are_disjoint_and_complete(halves):
    train, test = halves.train, halves.test.queries
    assert halves.test.gallery is None
    assert len(train.class_names) == len(test.class_names) == 200
    assert not set(train.class_names) & set(test.class_names)
    assert not set(train.positions.tolist()) & set(test.positions.tolist())
    assert torch.equal(torch.bincount(train.labels), torch.full((200,), FEW))
    assert torch.equal(torch.bincount(test.labels), torch.full((200,), FEW))


def test_every_script_is_in_every_contiguous_eighth():
    scripts = [unicodedata.name(c).split()[0] for c in CLASSES]
    assert set(scripts) == {"DIGIT", "LATIN", "GREEK", "CYRILLIC", "GEORGIAN", "ARMENIAN"}
    for hand in range(8):
        assert set(scripts[hand * 50 : hand * 50 + 50]) == set(scripts)


def test_each_character_is_a_class_once_and_drawn_by_twelve_faces(clean_drawings):
    assert sorted(CLASSES) == sorted(set(CHARACTERS))
    assert (clean_drawings.norm(dim=2) > 0).sum(1).min() >= 12


def test_a_character_that_a_face_lacks_is_not_drawn():
    assert clean_drawing("ა", "DejaVu Sans") is not None
    assert clean_drawing("ა", "STIX") is None


def test_no_two_classes_look_the_same(clean_drawings):
    alike = torch.einsum("ifp,jfp->ij", clean_drawings, clean_drawings)
    drawn = (clean_drawings.norm(dim=2) > 0).float()
    cosine = alike / (drawn @ drawn.T)
    assert cosine.fill_diagonal_(0).max() < 0.93


def test_the_drawing_does_not_depend_on_threads_or_global_random_state(halves):
    threads = torch.get_num_threads()
    torch.manual_seed(1)
    try:
        torch.set_num_threads(3 - min(threads, 2))
        images, faces = draw(FEW)
    finally:
        torch.set_num_threads(threads)
    source = halves.train.source
    assert torch.equal(images, source.images)
    assert torch.equal(faces, source.faces)


def test_images_of_a_class_differ_and_have_contrast(halves):
    images = halves.train.source.images.view(400, FEW, -1).float()
    assert (images[:, 0] - images[:, 1]).abs().mean(1).min() > 5
    assert images.std(2).min() > 5


def test_load_gives_three_equal_channels_of_what_the_picture_shows(halves):
    rows = torch.tensor([3, 77, 5])
    test = halves.test.queries
    inputs = test.load(rows)
    assert inputs.dtype == torch.uint8
    assert inputs.shape == (3, 3, SIDE, SIDE)
    assert torch.equal(inputs[:, 0], inputs[:, 2])
    picture = test.source.picture(int(test.positions[77]))
    assert np.array_equal(np.asarray(picture), inputs[1, 0].numpy())


def test_augmentation_is_a_pure_function_of_each_position_and_its_seed(halves):
    rows = torch.arange(40)
    state = torch.get_rng_state()
    first, again, other = (halves.train.load(rows, seeds) for seeds in (rows + 7, rows + 7, rows + 8))
    assert torch.equal(first[11:30], halves.train.load(rows[11:30], rows[11:30] + 7)), "neighbours must not matter"
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(first, again)
    changed = (first != other).flatten(1).any(1)
    assert changed.all()
    assert (first != halves.train.load(rows)).flatten(1).any(1).all()


def test_augmentation_inverts_about_half(halves):
    rows = torch.arange(400)
    before, after = halves.train.load(rows).float(), halves.train.load(rows, rows).float()
    brightness = torch.stack([before.mean((1, 2, 3)) - 127.5, after.mean((1, 2, 3)) - 127.5])
    clear = (brightness.abs() > 25).all(0)
    flipped = (brightness[0] * brightness[1] < 0)[clear].float().mean()
    assert 0.35 < flipped < 0.65


def test_names_are_readable(halves):
    assert "Greek small letter xi ξ" in halves.train.class_names + halves.test.queries.class_names
    position = CLASSES.index("ξ") * FEW + 1
    assert halves.train.source.name(position) == "Greek small letter xi ξ, DejaVu Sans Bold, image 1"


def test_the_cache_is_used_and_whole(halves, cache, monkeypatch):
    files = list(cache.iterdir())
    assert [file.suffix for file in files] == [".npz"]
    monkeypatch.setattr(glyphs, "draw", lambda _: pytest.fail("drawn although it is cached"))
    again = load_glyphs(FEW, cache)
    assert torch.equal(again.train.source.images, halves.train.source.images)


def test_other_parameters_are_another_cache_file():
    assert glyphs._fingerprint(2) != glyphs._fingerprint(3)


@pytest.fixture
def quick_draw(monkeypatch):
    images = torch.zeros(400 * FEW, 1, SIDE, SIDE, dtype=torch.uint8)
    monkeypatch.setattr(glyphs, "draw", lambda _: (images, torch.zeros(400 * FEW, dtype=torch.int64)))


@pytest.mark.usefixtures("quick_draw")
def test_a_damaged_cache_is_replaced(tmp_path):
    load_glyphs(FEW, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.warns(UserWarning, match="cannot be read"):
        load_glyphs(FEW, tmp_path)
    load_glyphs(FEW, tmp_path)  # no warning: whole again
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.usefixtures("quick_draw")
def test_an_unwritable_cache_only_warns(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError("read-only")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    with pytest.warns(UserWarning, match="drawn again next time"):
        halves = load_glyphs(FEW, tmp_path)
    assert len(halves.train) == 200 * FEW


@pytest.mark.usefixtures("quick_draw")
def test_the_cache_is_the_users(tmp_path, monkeypatch):
    monkeypatch.setitem(os.environ, "XDG_CACHE_HOME", str(tmp_path))
    load_glyphs(FEW)
    assert len(list((tmp_path / "ccp-dml").iterdir())) == 1
