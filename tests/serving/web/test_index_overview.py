"""The map and the confused classes."""

import time
from collections import Counter

import numpy as np
import pytest

from ccp_dml.serving.listed_images import list_images
from ccp_dml.serving.search.gallery import Hit, Item, Sample, exact_nearest
from ccp_dml.serving.search.index import SearchIndex
from ccp_dml.serving.search.index_writer import add_images
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


class InMemory:
    """A gallery of a few vectors, of which `sample` draws the first ones."""

    def __init__(self, labels, vectors):
        self.labels, self.vectors = labels, np.array(vectors, dtype=np.float32)
        self.count = len(labels)

    def label_counts(self):
        return Counter(label for label in self.labels if label is not None)

    def sample(self, limit):
        return Sample(np.arange(10, 10 + self.count)[:limit], self.labels[:limit], self.vectors[:limit])

    def search(self, queries, k, where=None):
        rows = np.arange(self.count)
        if where is not None:
            assert where == index_overview.LABELLED
            rows = np.array([row for row in rows if self.labels[row] is not None])
        _, places = exact_nearest(queries, self.vectors[rows], k)
        return [[Hit(Item(int(row) + 10, "", self.labels[row]), 0.0) for row in rows[some]] for some in places]


def test_confusions_are_counted_by_pairs_of_classes():
    places = [[0, 0], [0.1, 0], [5, 0], [5.1, 0], [9, 0], [9.05, 0]]
    found = confused_classes(InMemory(["a", "b", "a", "a", "c", "b"], places))
    assert found["queries"] == 5  # the only image of c has no right neighbour, and is not asked
    assert found["right"] == pytest.approx(2 / 5)
    assert found["pairs"] == [
        {"classes": ["a", "b"], "times": 2, "share": 2 / 5, "example": [10, 11]},
        {"classes": ["b", "c"], "times": 1, "share": 1 / 2, "example": [15, 14]},  # 14 is of c
    ]


def test_some_images_are_compared_with_all(monkeypatch):
    monkeypatch.setattr(index_overview, "MOST_QUERIES", 2)
    monkeypatch.setattr(index_overview, "QUERIES_AT_ONCE", 1)
    near_each_other = [[0, 0], [1, 0], [0.1, 0], [1.1, 0]]
    found = confused_classes(InMemory(["a", "b", "a", "b"], near_each_other))
    assert found == {"queries": 2, "right": 1.0, "pairs": []}


def test_images_without_labels_confuse_nothing(pictures, model, tmp_path):
    nothing = {"queries": 0, "right": None, "pairs": []}
    assert confused_classes(InMemory([None, None, "a"], [[0, 0], [1, 1], [2, 2]])) == nothing
    places = [[0, 0], [0.1, 0], [0.2, 0], [5, 0]]  # the nearest of the first has no label
    assert confused_classes(InMemory(["a", None, "a", "b"], places)) == {"queries": 2, "right": 1.0, "pairs": []}
    add_images(tmp_path / "x.index", model, tmp_path, list_images([pictures, *(pictures / "red").iterdir()]))
    add_images(tmp_path / "y.index", model, tmp_path, list_images([pictures / "red", pictures / "green" / "0.png"]))
    with_labels, without = (SearchIndex.open(tmp_path / name) for name in ("x.index", "y.index"))
    assert confused_classes(with_labels)["queries"] == 24
    assert confused_classes(without) == nothing
    (hits,) = without.search(without.vectors_of([1]), 2, index_overview.LABELLED)
    assert hits == []


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
