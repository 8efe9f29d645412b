from dataclasses import replace

import pytest

from ccp_dml.data.published.cub import CUB
from ccp_dml.data.published.inventory import Inventory, ListedImage, SplitSize
from ccp_dml.data.published.mnist import MNIST
from ccp_dml.data.published.published_set import (
    Survey,
    differences,
    load_published,
    not_found,
    refuse_incomplete,
    survey_of,
    verify,
)
from ccp_dml.errors import UserError

SIZES = {"train": SplitSize(1, 2), "test": SplitSize(1, 1)}


@pytest.fixture
def small(write_images):
    """A data set of three images, which reads itself."""
    base = write_images("a0.png", "a1.png", "b0.png")
    listed = (("a0.png", 1, "train"), ("a1.png", 1, "train"), ("b0.png", 2, "test"))
    entries = tuple(ListedImage(base / name, number, split) for name, number, split in listed)
    return replace(CUB, title="Small", sizes=SIZES, read=lambda _: Inventory(base, entries, {1: "a", 2: "b"}))


def test_a_survey_names_all_files_and_those_that_are_missing(small, tmp_path):
    (tmp_path / "a1.png").unlink()
    survey = survey_of(small.read)(tmp_path)
    assert survey.base == tmp_path
    assert survey.sizes == {"train": SplitSize(1, 1), "test": SplitSize(1, 1)}
    assert [path.name for path in survey.paths] == ["a0.png", "a1.png", "b0.png"]
    assert survey.missing == (tmp_path / "a1.png",)


def test_each_split_with_other_numbers_is_told():
    assert differences(SIZES, SIZES) == []
    found = {"train": SplitSize(1_000, 2_000)}
    assert differences(found, SIZES) == [
        "train has 2,000 images of 1,000 classes instead of 2 of 1",
        "test has 0 images of 0 classes instead of 1 of 1",
    ]


def test_other_numbers_than_the_published_ones_are_a_note(small, tmp_path, reading):
    assert load_published(small, tmp_path, reading).notes == ()
    larger = replace(small, sizes={**SIZES, "test": SplitSize(1, 5)})
    halves = load_published(larger, tmp_path, reading)
    assert halves.notes == ("not Small as published: test has 1 images of 1 classes instead of 5 of 1",)
    assert (len(halves.train), len(halves.test.queries)) == (2, 1)


def test_images_in_memory_are_not_read_file_by_file(tmp_path, reading):
    with pytest.raises(TypeError, match="mnist is not a data set of image files"):
        load_published(MNIST, tmp_path, reading)


def test_what_is_there_instead_is_told(tmp_path):
    assert "there is no folder" in str(not_found(tmp_path / "nowhere", "CUB", "images/"))
    assert "(found: nothing)" in str(not_found(tmp_path, "CUB", "images/"))
    (tmp_path / "notes.txt").touch()
    error = not_found(tmp_path, "CUB", "images/")
    assert isinstance(error, UserError)
    assert str(error) == f"{tmp_path} holds no CUB (found: notes.txt): expected images/"


@pytest.fixture
def published(write_images):
    """Two images, all there; its survey tells which of them are missing."""
    base = write_images("a.png", "b.png")

    def survey(root):
        paths = (root / "a.png", root / "b.png")
        missing = tuple(path for path in paths if not path.is_file())
        return Survey(base, {"train": SplitSize(1, 2 - len(missing))}, paths, missing)

    return replace(CUB, sizes={"train": SplitSize(1, 2)}, survey=survey)


def test_a_complete_data_set_has_no_problems(published, tmp_path):
    found = verify(published, tmp_path, deep=True)
    assert found.problems == ()
    assert found.as_dict()["complete"]
    refuse_incomplete(found, "mine.tar")


def test_missing_images_and_wrong_numbers_are_one_sentence(published, tmp_path):
    (tmp_path / "b.png").unlink()
    found = verify(published, tmp_path)
    with pytest.raises(UserError, match=r"^mine\.tar is not CUB-200-2011 as published: 1 of 2 .*b\.png; train has 1"):
        refuse_incomplete(found, "mine.tar")
    told = found.as_dict()
    assert not told["complete"]
    assert told["missing"] == [str(tmp_path / "b.png")]
    assert told["splits"] == {"train": {"classes": 1, "images": 1, "published_classes": 1, "published_images": 2}}


def test_only_a_deep_look_opens_images(published, tmp_path):
    (tmp_path / "a.png").write_bytes(b"no image")
    assert verify(published, tmp_path).problems == ()
    (problem,) = verify(published, tmp_path, deep=True).problems
    assert problem.startswith(f"1 of 2 images cannot be read: {tmp_path / 'a.png'} (")
