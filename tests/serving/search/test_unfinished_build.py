"""What a build has embedded so far, found again by content."""

import numpy as np
import pytest

from ccp_dml.serving.search.unfinished_build import UnfinishedBuild, journal_folder

MODEL = "d" * 32


@pytest.fixture
def index(tmp_path):
    """Where an index will be, of which five vectors are computed."""
    build = UnfinishedBuild(tmp_path / "x.index", MODEL, 2)
    build.append(["a", "b", "c"], np.array([[1, 1], [2, 2], [3, 3]], np.float32))
    build.append(["d", "e"], np.array([[4, 4], [5, 5]], np.float32))
    return tmp_path / "x.index"


def test_vectors_are_found_by_content(index):
    build = UnfinishedBuild(index, MODEL, 2)
    assert len(build) == 5
    assert "c" in build
    assert "z" not in build
    assert [build.vector(content).tolist() for content in "dac"] == [[4, 4], [1, 1], [3, 3]]
    build.append(["f"], np.array([[6, 6]], np.float32))
    assert build.vector("f").tolist() == [6, 6]
    with pytest.raises(KeyError):
        build.vector("z")


def test_another_model_begins_anew(index):
    assert len(UnfinishedBuild(index, "e" * 32, 2)) == 0
    assert len(UnfinishedBuild(index, MODEL, 2)) == 0


def test_nothing_is_left_once_it_is_removed(index):
    assert journal_folder(index).is_dir()
    UnfinishedBuild(index, MODEL, 2).remove()
    assert list(index.parent.iterdir()) == []
