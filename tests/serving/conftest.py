"""Small folders of coloured pictures, and indexes of them by a stand-in network."""

import pytest
from support.made_up_index import made_up_index
from support.pictures import write_pictures
from support.stand_in_model import StandInModel

from ccp_dml.serving.listed_images import list_images
from ccp_dml.serving.search.index_writer import add_images


@pytest.fixture
def pictures(tmp_path):
    return write_pictures(tmp_path / "pictures")


@pytest.fixture
def model():
    return StandInModel()


@pytest.fixture
def index_folder(tmp_path, pictures, model):
    """An index of 24 pictures of four classes."""
    folder = tmp_path / "colours.index"
    add_images(folder, model, tmp_path / "model", list_images([pictures]))
    model.embedded = 0
    return folder


@pytest.fixture(name="made_up_index")
def indexes_made_up(tmp_path):
    """Makes an index of so many random unit vectors, whose images do not exist."""

    def make(count, kind=None, dim=16):
        return made_up_index(tmp_path / f"made-up-{count}-{kind}", count, dim, kind)

    return make
