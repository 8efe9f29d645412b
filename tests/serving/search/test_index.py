"""Searching an index: exactly and with conditions; and what a damaged one says."""

import json
import shutil

import numpy as np
import pytest
from support.pictures import write_picture

from ccp_dml.errors import UserError
from ccp_dml.serving.listed_images import list_images
from ccp_dml.serving.search import index as index_module
from ccp_dml.serving.search.index import SearchIndex
from ccp_dml.serving.search.index_store import read_manifest
from ccp_dml.serving.search.index_writer import add_images


def by_hand(index, query, k, keep=bool):
    """Ids of the nearest by the plain formula, equals by id."""
    items = [item for item in index.items(index.ids.tolist()) if keep(item)]
    vectors = index.vectors_of([item.id for item in items]).astype(np.float64)
    distances = np.linalg.norm(vectors - query.astype(np.float64), axis=1)
    order = sorted(range(len(items)), key=lambda place: (np.float32(distances[place]), items[place].id))[:k]
    return [(items[place].id, distances[place]) for place in order]


def test_search_finds_the_nearest_by_the_plain_formula(index_folder, model, tmp_path):
    index = SearchIndex.open(index_folder)
    queries = model.embed([write_picture(tmp_path / f"q{n}.png", (200 - 50 * n, 80, 60 * n), 50 + n) for n in range(4)])
    for query, hits in zip(queries, index.search(queries, 7), strict=True):
        expected = by_hand(index, query, 7)
        assert [hit.item.id for hit in hits] == [number for number, _ in expected]
        assert [hit.distance for hit in hits] == pytest.approx([distance for _, distance in expected], abs=1e-6)


def test_more_results_than_images_gives_all(index_folder):
    (hits,) = SearchIndex.open(index_folder).search(np.ones((1, 48), np.float32), 1000)
    assert len(hits) == 24
    assert [hit.distance for hit in hits] == sorted(hit.distance for hit in hits)


def test_a_closed_index_has_let_go_of_its_table(index_folder):
    index = SearchIndex.open(index_folder)
    index.close()
    with pytest.raises(UserError, match="has been closed; open it again"):
        index.search(np.ones((1, 48), np.float32), 1)


def test_conditions_and_left_out_images(index_folder, model, pictures):
    index = SearchIndex.open(index_folder)
    (query,) = model.embed([pictures / "red" / "0.png"])
    (itself, *_) = index.search(query[None], 1)[0]
    assert itself.distance == 0
    (hits,) = index.search(query[None], 5, 'label in ("red", "blue")', leave_out=[itself.item.id])
    assert [hit.item.id for hit in hits] == [
        number
        for number, _ in by_hand(
            index, query, 5, lambda item: item.label in ("red", "blue") and item.id != itself.item.id
        )
    ]
    for k in (5, 23, 100):
        (hits,) = index.search(query[None], k, leave_out=[itself.item.id, itself.item.id])
        expected = by_hand(index, query, k, lambda item: item.id != itself.item.id)
        assert [hit.item.id for hit in hits] == [number for number, _ in expected]
    assert index.search(query[None], 5, 'label = "nothing"') == [[]]
    with pytest.raises(UserError, match="no attribute 'lable'; did you mean 'label'"):
        index.search(query[None], 5, 'lable = "red"')
    with pytest.raises(KeyError):
        index.search(query[None], 5, leave_out=[99])


def test_what_sqlite_cannot_do_is_not_called_damage(index_folder):
    with pytest.raises(UserError, match=r"cannot be read \(no such column: beak\); try again"):
        SearchIndex.open(index_folder)._rows("SELECT beak FROM items")


@pytest.mark.parametrize(
    ("queries", "k", "message"),
    [
        (np.ones((1, 5)), 1, "vector of 48 numbers"),
        (np.full((1, 48), np.nan), 1, "NaN"),
        (np.ones((1, 48)), 0, "k = 0"),
    ],
)
def test_wrong_queries_are_refused(index_folder, queries, k, message):
    with pytest.raises(UserError, match=message):
        SearchIndex.open(index_folder).search(queries, k)


def test_what_is_known_about_the_images(index_folder, pictures, model, monkeypatch):
    table = pictures / "list.csv"
    rows = [f"red/{n}.png,red,{2000 + n},s{n % 2}" for n in range(6)]
    table.write_text("\n".join(["path,label,year,side", *rows]))
    add_images(index_folder, model, pictures, list_images([table]))
    index = SearchIndex.open(index_folder)
    assert index.attribute_values()["year"] == list(range(2000, 2006))
    monkeypatch.setattr("ccp_dml.serving.search.index.MOST_VALUES", 3)
    assert index.attribute_values() == {"side": ["s0", "s1"], "year": []}
    sample = index.sample(10)
    assert len(set(sample.ids.tolist())) == len(sample.labels) == len(sample.vectors) == 10
    assert [item.label for item in index.items(sample.ids.tolist())] == sample.labels
    assert np.array_equal(index.vectors_of(sample.ids.tolist()), sample.vectors)
    assert np.array_equal(SearchIndex.open(index_folder).sample(10).ids, sample.ids)


def test_values_that_are_texts_in_one_table_and_numbers_in_another_are_said(index_folder, pictures, model):
    for name, rows in (("a", "red/0.png,2020\nred/1.png,2021\n"), ("b", "red/2.png,2022\nred/3.png,unknown\n")):
        (pictures / f"{name}.csv").write_text(f"path,year\n{rows}")
        add_images(index_folder, model, pictures, list_images([pictures / f"{name}.csv"]))
    index = SearchIndex.open(index_folder)
    assert "is text with some images, such as '2022'" in "".join(index.notes_on("year >= 2020"))
    assert "is a number with some images, such as 2020" in "".join(index.notes_on("year = '2022'"))
    assert index.notes_on("label = 'red'") == []
    assert index.notes_on("class = 'Red'") == ["No image has the `class` 'Red'; did you mean 'red'?"]


def test_values_of_another_case_are_named_also_where_there_are_many(index_folder, pictures, model, monkeypatch):
    monkeypatch.setattr(index_module, "MOST_VALUES", 2)  # to choose from
    rows = "".join(f"green/{number}.png,Lake {number}\n" for number in range(4))
    (pictures / "places.csv").write_text(f"path,place\n{rows}")
    add_images(index_folder, model, pictures, list_images([pictures / "places.csv"]))
    index = SearchIndex.open(index_folder)
    assert index.attribute_values() == {"place": []}
    assert index.notes_on("place = 'lake 3'") == ["No image has the `place` 'lake 3'; did you mean 'Lake 3'?"]
    assert index.notes_on("place = 'Lake 3'") == []


def change_manifest(folder, **changes):
    file = folder / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def damage_vectors(folder):
    file = folder / "vectors-000001.f32"
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: shutil.rmtree(folder), "There is no index"),
        (lambda folder: (folder / "manifest.json").unlink(), "is no index"),
        (lambda folder: (folder / "manifest.json").write_text('{"format": 1'), "is damaged .manifest.json"),
        (lambda folder: change_manifest(folder, format=2), "is damaged .manifest.json, format"),
        (lambda folder: change_manifest(folder, count=23), "not 23 of 48 numbers"),
        (lambda folder: change_manifest(folder, files={}), "names no vectors"),
        (lambda folder: (folder / "vectors-000001.f32").unlink(), "vectors-000001.f32 is missing"),
        (lambda folder: (folder / "vectors-000001.f32").write_bytes(b"x"), "1 bytes instead of 4,608"),
        (damage_vectors, "has another content than was written"),
        (lambda folder: (folder / "items-000001.sqlite").write_bytes(b"not SQL"), "items-000001.sqlite has 7 bytes"),
    ],
)
def test_what_is_no_index_or_damaged_says_so(index_folder, damage, message):
    damage(index_folder)
    with pytest.raises(UserError, match=message):
        SearchIndex.open(index_folder)


def test_what_is_said_to_help_a_damaged_index_helps(index_folder, pictures, model):
    damage_vectors(index_folder)
    for use in (SearchIndex.open, lambda folder: add_images(folder, model, pictures, list_images([pictures]))):
        with pytest.raises(UserError, match="; remove it, and make it again with `ccp index`"):
            use(index_folder)
    shutil.rmtree(index_folder)
    add_images(index_folder, model, pictures, list_images([pictures]))
    assert SearchIndex.open(index_folder).count == 24


def test_a_manifest_cannot_name_files_elsewhere(index_folder):
    files = read_manifest(index_folder).model_dump()["files"]
    change_manifest(index_folder, files=files | {"items": files["items"] | {"name": "../x-000001.sqlite"}})
    with pytest.raises(UserError, match=r"is damaged .*files.items.name"):
        SearchIndex.open(index_folder)
