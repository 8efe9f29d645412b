"""Small folders of coloured pictures, and indexes of them by a stand-in network."""

import numpy as np
import pytest
from support.pictures import write_pictures
from support.stand_in_model import StandInModel

from ccp_dml.serving.listed_images import list_images
from ccp_dml.serving.search import approximate
from ccp_dml.serving.search.index import SearchIndex
from ccp_dml.serving.search.index_store import NextGeneration, PinnedModel
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


@pytest.fixture
def made_up_index(tmp_path):
    """Makes an index of so many random unit vectors, whose images do not exist."""

    def make(count, kind=None, dim=16):
        folder = tmp_path / f"made-up-{count}-{kind}"
        generation = NextGeneration(folder, None)
        vectors = np.random.default_rng(0).normal(size=(count, dim)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors.tofile(generation.path("vectors"))
        table = generation.new_table()
        rows = [(number + 1, f"/p/{number}.png", str(number % 7), 1, 1, "x") for number in range(count)]
        table.executemany("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?)", rows)
        table.commit()
        table.close()
        built = None if kind is None else approximate.build(kind, vectors, generation.path("approximate"))
        generation.commit(PinnedModel(path="m", name="m", digest="d", dim=dim), count, count + 1, built)
        return SearchIndex.open(folder)

    return make
