"""The map and the confused classes."""

import time

import numpy as np
import pytest

from ccp_dml.serving.search.gallery import Sample
from ccp_dml.serving.search.index import SearchIndex
from ccp_dml.serving.web import index_overview
from ccp_dml.serving.web.index_overview import Overview, confused_classes


def sample_of(labels, vectors):
    return Sample(np.arange(10, 10 + len(labels)), labels, np.array(vectors, dtype=np.float32))


def final_map(overview):
    for _ in range(600):
        if overview.map().is_final:
            break
        time.sleep(0.1)
    return overview.map()


def test_confusions_are_counted_by_pairs_of_classes():
    places = [[0, 0], [0.1, 0], [5, 0], [5.1, 0], [9, 0], [9.05, 0]]
    found = confused_classes(sample_of(["a", "b", "a", "a", "c", "b"], places))
    assert found["queries"] == 6
    assert found["right"] == pytest.approx(2 / 6)
    assert found["pairs"] == [
        {"classes": ["a", "b"], "times": 2, "share": 2 / 5, "example": [10, 11]},
        {"classes": ["b", "c"], "times": 2, "share": 2 / 3, "example": [15, 14]},  # 14 is of c
    ]


def test_images_without_labels_confuse_nothing():
    assert confused_classes(sample_of([None, None, "a"], [[0, 0], [1, 1], [2, 2]])) == {
        "queries": 1,
        "right": None,
        "pairs": [],
    }


def test_the_map_starts_flat_and_improves(index_folder):
    overview = Overview(SearchIndex.open(index_folder))
    first = overview.map()
    assert (first.kind, first.is_final) == ("PCA", False)
    final = final_map(overview).as_dict()
    assert final["kind"] == "t-SNE"
    assert final["ids"] == list(range(1, 25))
    assert final["classes"] == ["<b>bold", "blue", "green", "red"]
    assert [final["classes"][number] for number in final["labels"]] == first.labels
    for axis in (final["x"], final["y"]):
        assert 0 <= min(axis) <= max(axis) <= 1
    assert max(max(final["x"]) - min(final["x"]), max(final["y"]) - min(final["y"])) == pytest.approx(1, abs=1e-3)
    assert overview.map() is overview.map()


def test_the_flat_map_alone_is_final(index_folder):
    made = Overview(SearchIndex.open(index_folder), with_tsne=False).map()
    assert (made.kind, made.is_final) == ("PCA", True)
    colours = {label: made.places[[other == label for other in made.labels]].mean(0) for label in set(made.labels)}
    assert min(np.linalg.norm(colours["red"] - colours[other]) for other in ("green", "blue")) > 0.2


def test_the_flat_map_stays_where_a_better_one_fails(index_folder, monkeypatch, caplog):
    def fail(*_, **__):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(index_overview, "tsne_plane", fail)
    overview = Overview(SearchIndex.open(index_folder))
    first = overview.map()
    final = final_map(overview)
    assert (final.kind, final.is_final) == ("PCA", True)
    assert final.ids == first.ids
    assert "out of luck" in caplog.text


def test_images_with_one_vector_have_a_map():
    class OfOneVector:
        def sample(self, _):
            return sample_of(["a"] * 12, np.ones((12, 8)))

    final = final_map(Overview(OfOneVector())).as_dict()
    assert final["final"] is True
    assert set(final["x"]) == set(final["y"]) == {0.5}
