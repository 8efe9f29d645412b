"""Approximate search: faiss proposes, exact distances decide, and its recall is measured."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from ccp_dml.errors import UserError
from ccp_dml.serving.listed_images import list_images
from ccp_dml.serving.search import approximate
from ccp_dml.serving.search.index import SearchIndex
from ccp_dml.serving.search.index_store import read_manifest
from ccp_dml.serving.search.index_writer import add_images, refresh, remove_images


@pytest.mark.parametrize("kind", approximate.KINDS)
def test_approximate_search_ranks_its_candidates_exactly(made_up_index, kind):
    pytest.importorskip("faiss")
    exact, close = made_up_index(3000), made_up_index(3000, kind)
    stated = close.manifest.approximation
    assert stated.kind == kind
    assert stated.recall_at_10 > 0.9
    queries = np.random.default_rng(1).normal(size=(40, 16)).astype(np.float32)
    found, true = close.search(queries, 10), exact.search(queries, 10)
    shared = [len({h.item.id for h in a} & {h.item.id for h in b}) / 10 for a, b in zip(found, true, strict=True)]
    assert np.mean(shared) > 0.85
    for hits, query in zip(found, queries, strict=True):
        own = close.vectors_of([hit.item.id for hit in hits])
        assert [hit.distance for hit in hits] == pytest.approx(np.linalg.norm(own - query, axis=1), abs=1e-5)
        assert [hit.distance for hit in hits] == sorted(hit.distance for hit in hits)
    assert close.search(queries, 10, 'label = "3"') == exact.search(queries, 10, 'label = "3"')  # conditions: exact


def test_an_image_is_left_out_without_a_look_at_all_others(made_up_index, monkeypatch):
    pytest.importorskip("faiss")
    index = made_up_index(3000, "hnsw")
    query = index.vectors_of([7])
    itself, *others = index.search(query, 11)[0]
    assert itself.item.id == 7
    monkeypatch.delattr(index, "_exact")
    assert index.search(query, 10, leave_out=[7]) == [others]


def test_approximate_search_of_few_images_is_refused(tmp_path, pictures, model):
    pytest.importorskip("faiss")
    with pytest.raises(UserError, match="--approximate is for large indexes; this one has 24 images"):
        add_images(tmp_path / "x.index", model, tmp_path, list_images([pictures]), "hnsw")
    assert not (tmp_path / "x.index").exists()
    assert model.embedded == 0


def test_without_faiss_nothing_is_embedded_for_an_approximate_index(tmp_path, pictures, model, monkeypatch):
    monkeypatch.setattr(approximate, "LEAST_VECTORS", 24)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UserError, match="Approximate search needs faiss: pip install"):
        add_images(tmp_path / "x.index", model, tmp_path, list_images([pictures]), "hnsw")
    assert model.embedded == 0


@pytest.fixture
def small_approximate(tmp_path, pictures, model, monkeypatch):
    """An approximate index of 24 pictures, where 23 are the fewest that can have one."""
    pytest.importorskip("faiss")
    monkeypatch.setattr(approximate, "LEAST_VECTORS", 23)
    folder = tmp_path / "x.index"
    add_images(folder, model, tmp_path, list_images([pictures]), "ivf")
    return folder


@pytest.mark.parametrize("refreshed", [True, False])
def test_where_too_few_images_are_left_search_is_exact_again(small_approximate, pictures, model, refreshed):
    (pictures / "red" / "0.png").unlink()
    assert not refresh(small_approximate, model, drop_missing=True).exact_again  # 23 are enough
    assert read_manifest(small_approximate).approximation is not None
    for image in (pictures / "red").iterdir():
        image.unlink()
    changes = (
        refresh(small_approximate, model, drop_missing=True)
        if refreshed
        else remove_images(small_approximate, [pictures / "red"])
    )
    assert changes.exact_again
    assert read_manifest(small_approximate).approximation is None
    assert SearchIndex.open(small_approximate).search(np.ones((1, model.dim), np.float32), 30)[0][17:]


def test_another_kind_of_approximation_is_built_and_the_same_is_not(small_approximate, pictures, model, tmp_path):
    add_images(small_approximate, model, tmp_path, list_images([pictures]), "hnsw")
    manifest = read_manifest(small_approximate)
    assert manifest.approximation.kind == "hnsw"
    for asked in ("hnsw", None):
        add_images(small_approximate, model, tmp_path, list_images([pictures]), asked)
    assert read_manifest(small_approximate) == manifest


def test_vectors_are_mapped_so_that_torch_takes_them_as_they_are(tmp_path, pictures, model, monkeypatch):
    pytest.importorskip("faiss")
    seen = []

    def build(kind, vectors, file, really_build=approximate.build):
        seen.append(vectors)
        return really_build(kind, vectors, file)

    monkeypatch.setattr(approximate, "LEAST_VECTORS", 24)
    monkeypatch.setattr(approximate, "build", build)
    add_images(tmp_path / "x.index", model, tmp_path, list_images([pictures]), "hnsw")
    (vectors,) = seen
    assert isinstance(vectors, np.memmap)
    assert vectors.flags.writeable  # torch warns otherwise, once per process


def test_a_damaged_approximate_index_is_named(made_up_index):
    pytest.importorskip("faiss")
    index = made_up_index(1500, "hnsw")
    (index.folder / index.manifest.files["approximate"].name).write_bytes(b"no faiss")
    with pytest.raises(UserError, match=r"is damaged \(approximate-000001\.faiss"):
        approximate.open_index(index.folder, index.manifest)


class ProposesNothing:
    """An inverted file whose lists were all empty."""

    def search(self, queries, wanted):
        return None, np.full((len(queries), wanted), -1)


def test_where_nothing_is_proposed_everything_is_looked_at():
    vectors = np.eye(70, dtype=np.float32)
    distances, rows = approximate.ApproximateIndex(ProposesNothing()).search(vectors[5:6], vectors, 3)
    assert rows[0].tolist() == [5, 0, 1]
    assert distances[0] == pytest.approx([0, 2**0.5, 2**0.5])


def test_an_inverted_file_learns_from_all_classes_not_from_the_first(monkeypatch, tmp_path):
    """From some 65,000 images on, it learns from a part of them."""
    index = SimpleNamespace(nlist=2000, train=lambda vectors: learned.extend(vectors[:, 0]), add=lambda _: None)
    learned: list[float] = []
    library = SimpleNamespace(IndexFlatL2=lambda dim: dim, IndexIVFFlat=lambda *_: index, write_index=lambda *_: None)
    monkeypatch.setattr(approximate, "_faiss", lambda: library)
    monkeypatch.setattr(approximate, "_recall", lambda *_: 1.0)
    approximate.build("ivf", np.arange(300_000, dtype=np.float32)[:, None], tmp_path / "approximate.faiss")
    assert len(set(learned)) == len(learned) == 64 * 2000
    assert np.histogram(learned, bins=3, range=(0, 300_000))[0] == pytest.approx(len(learned) / 3, rel=0.01)
