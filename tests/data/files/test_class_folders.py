from pathlib import Path

import pytest

from ccp_dml.data.files.class_folders import (
    ImageWalk,
    class_folders,
    images_below,
    leading_number,
    places,
    subfolders,
    unread_below,
)


def test_hidden_folders_and_caches_are_no_classes(tmp_path):
    for name in ("b", "a", ".git", "cached-256"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("")
    assert [folder.name for folder in subfolders(tmp_path)] == ["a", "b"]
    assert [folder.name for folder in places(tmp_path)] == [tmp_path.name, "a", "b"]
    assert subfolders(tmp_path / "missing") == []


@pytest.mark.parametrize(
    ("name", "number"),
    [("001.Albatross", 1), ("17", 17), ("017 Some car", 17), ("18", None), ("0", None), ("3x", None), ("bird", None)],
)
def test_official_numbers_in_names(name, number):
    assert leading_number(name, largest=17) == number


def test_a_single_name_is_a_coincidence(tmp_path):
    (tmp_path / "2.b").mkdir()
    assert class_folders(tmp_path, lambda name: leading_number(name, 9)) == []
    (tmp_path / "1.a").mkdir()
    (tmp_path / "other").mkdir()
    found = class_folders(tmp_path, lambda name: leading_number(name, 9))
    assert [(number, folder.name) for number, folder in found] == [(1, "1.a"), (2, "2.b")]


def test_images_are_listed_in_the_order_of_their_paths_however_deep(write_images):
    root = write_images("b.png", "a/2.jpg", "a/1.PNG", "a/.hidden.png", ".x/3.png")
    deep = Path(root, *["d"] * 400)
    deep.mkdir(parents=True)
    (deep / "e.png").write_bytes((root / "b.png").read_bytes())
    (root / "note.txt").write_text("")
    found = [str(path.relative_to(root)) for path in images_below(root)]
    assert found == sorted(found)
    assert {"b.png", "a/1.PNG", "a/2.jpg"} < set(found)
    assert len(found) == 4


def test_pictures_of_formats_that_are_not_read_are_counted(write_images):
    root = write_images("a/1.png", "a/2.jpg")
    for name in ("a/3.HEIC", "a/4.heic", "5.dng", "a/.hidden.heic", "a/film.mov", "a/note.txt"):
        (root / name).write_bytes(b"x")
    (root / "a" / "6.jfif").write_bytes((root / "a" / "2.jpg").read_bytes())
    (root / "a" / "7.jpe").write_bytes((root / "a" / "2.jpg").read_bytes())
    walk = ImageWalk(root)
    assert [path.name for path in walk.images_below(root)] == ["1.png", "2.jpg", "6.jfif", "7.jpe"]
    assert walk.notes() == [
        "left out 3 files of formats that are not read (.heic 2, .dng 1): convert them to JPEG",
    ]
    assert unread_below([root, root / "a" / "1.png", "a pattern*"]) == {".heic": 2, ".dng": 1}


def test_links_that_lead_nowhere_are_left_out(write_images):
    root = write_images("a/1.png")
    (root / "a" / "loop.png").symlink_to(root / "a" / "loop.png")
    (root / "a" / "gone.png").symlink_to(root / "a" / "nothing.png")
    walk = ImageWalk(root)
    assert [path.name for path in walk.images_below(root)] == ["1.png"]
    assert walk.notes() == [f"left out 2 links that lead nowhere: {root}/a/gone.png, {root}/a/loop.png"]
