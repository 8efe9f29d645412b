"""Every way in which a folder is not the published data set."""

from dataclasses import replace

import pytest

from ccp_dml.data.published.cub import CUB
from ccp_dml.data.published.inventory import SplitSize
from ccp_dml.data.published.published_set import Survey
from ccp_dml.data.published.verification import refuse_incomplete, verify
from ccp_dml.errors import UserError


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
