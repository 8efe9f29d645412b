"""Bringing a data set into a folder; what a person sees of it is in tests/commands/test_data.py."""

import zipfile

import pytest
from support.small_published_set import SMALL_SET

from ccp_dml.data.published.preparation import Steps, prepare
from ccp_dml.errors import UserError


@pytest.fixture
def have(tmp_path):
    """The two published files in a folder of a person's."""
    folder = tmp_path / "have"
    folder.mkdir()
    (folder / "list.txt").write_text("two images")
    with zipfile.ZipFile(folder / "images.zip", "w") as packed:
        for name in ("a.jpg", "b.jpg"):
            packed.writestr(name, name)
    return folder


class Told:
    """Remembers what goes on."""

    def __init__(self):
        self.notes = []
        self.steps = Steps(self.notes.append, lambda *_: None)


def is_whole(base):
    return (base / "list.txt").is_file() and sorted(path.name for path in (base / "images").iterdir()) == [
        "a.jpg",
        "b.jpg",
    ]


@pytest.mark.parametrize("given", ["have", "have/images.zip"])
def test_published_files_are_put_together_in_their_places(have, tmp_path, given):
    told = Told()
    prepare(SMALL_SET, tmp_path / "root", tmp_path / given, told.steps)
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["small"]
    assert is_whole(tmp_path / "root" / "small")
    assert told.notes[-1] == f"{tmp_path / 'root' / 'small'} holds Small."
    assert (have / "images.zip").is_file()


def test_one_file_of_several_needs_the_others(have, tmp_path):
    (have / "list.txt").unlink()
    with pytest.raises(UserError, match=r"images\.zip is not all of Small: put list\.txt beside it"):
        prepare(SMALL_SET, tmp_path / "root", have / "images.zip", Told().steps)
    assert not (tmp_path / "root").exists()


def test_a_folder_that_is_the_data_set_is_linked(tmp_path):
    base = tmp_path / "mine"
    (base / "images").mkdir(parents=True)
    for name in ("list.txt", "images/a.jpg", "images/b.jpg"):
        (base / name).touch()
    told = Told()
    prepare(SMALL_SET, tmp_path / "root", base, told.steps)
    assert (tmp_path / "root" / "mine").is_symlink()
    assert told.notes == [f"{tmp_path / 'root' / 'mine'} now leads to {base}, which must stay where it is."]
    prepare(SMALL_SET, tmp_path / "root", None, told.steps)
    assert told.notes[1:] == [f"{tmp_path / 'root'} already holds Small."]


def test_files_that_cannot_be_fetched_are_asked_for(have, tmp_path):
    with pytest.raises(UserError, match=r"get images\.zip and list\.txt with a browser .*put them into "):
        prepare(SMALL_SET, tmp_path / "root", None, Told().steps)
    assert not (tmp_path / "root").exists()
    prepare(SMALL_SET, have, None, Told().steps)  # a person put them there
    assert is_whole(have / "small")


def test_too_few_images_leave_nothing_behind(have, tmp_path):
    with zipfile.ZipFile(have / "images.zip", "w") as packed:
        packed.writestr("a.jpg", "a")
    with pytest.raises(UserError, match="is not Small as published: train has 1 images of 1 classes instead of 2"):
        prepare(SMALL_SET, tmp_path / "root", have, Told().steps)
    assert not (tmp_path / "root").exists()


def test_a_disk_that_refuses_is_told(have, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="Small could not be put into"):
        prepare(SMALL_SET, tmp_path / "file" / "root", have, Told().steps)
