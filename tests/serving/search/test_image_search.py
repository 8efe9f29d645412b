"""Searching from Python: the nearest of one picture and of many, conditions, rates, and where the model is."""

import numpy as np
import pytest
from PIL import Image

import ccp_dml as ccp
from ccp_dml.cli import main
from ccp_dml.errors import UserError


@pytest.fixture(scope="module")
def birds(photo_run, photos, tmp_path_factory):
    folder = tmp_path_factory.mktemp("image_search") / "birds.index"
    assert main(["index", str(photo_run[0]), str(photos), "--out", str(folder)]) == 0
    return folder


def test_each_picture_finds_its_neighbours(birds, photos):
    index = ccp.open_index(birds)
    queries = [photos / "class_03" / "1.png", photos / "class_05" / "2.png"]
    found = index.search(queries, k=4)
    vectors = np.asarray(index.gallery.vectors, dtype=np.float64)
    for query, hits in zip(index.model.comparable(index.model.embed(queries)), found, strict=True):
        distances = np.linalg.norm(vectors - query, axis=1)
        assert [hit.distance for hit in hits] == pytest.approx(np.sort(distances)[:4], abs=1e-4)
    assert [hits[0].item.path for hits in found] == [str(query) for query in queries]
    ((only,),) = index.search(Image.open(queries[0]), k=1)
    assert (only.item.label, only.item.path) == ("class_03", str(queries[0]))
    assert index.search([]) == []


def test_conditions_and_rates_narrow_the_results(birds, photos):
    index = ccp.open_index(birds)
    query = photos / "class_03" / "1.png"
    (others,) = index.search(query, 80, where='label != "class_03"')
    assert len(others) == 75
    (near,) = index.search(query, 80, within=0.2)
    assert 0 < len(near) < 80
    assert near[-1].distance <= index.model.threshold(0.2)


def test_another_model_is_refused(birds, make_frozen_run):
    with pytest.raises(UserError, match="holds vectors of the model"):
        ccp.open_index(birds, make_frozen_run()[0])
