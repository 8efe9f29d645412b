"""An index in the real embedded engine: the same results, uploads that go on, and addresses that are wrong."""

import shutil

import numpy as np
import pytest
from support.pictures import write_picture, write_pictures

from ccp_dml.errors import UserError
from ccp_dml.serving.listed_images import list_images
from ccp_dml.serving.search import vector_engine
from ccp_dml.serving.search.index import SearchIndex
from ccp_dml.serving.search.index_writer import add_images, remove_images
from ccp_dml.serving.search.vector_engine import Address, MilvusGallery, Pushed, is_address, open_gallery, push
from ccp_dml.serving.web.index_overview import LABELLED

pytest.importorskip("pymilvus")
pytest.importorskip("milvus_lite")

HARD_TEXT = "an \"odd\" \\ 'place' ö <b>"


@pytest.fixture
def described(index_folder, pictures, model):
    """The index with attributes: texts, numbers, gaps."""
    rows = [f"green/{n}.png,green,{2000 + n},{n / 2}," for n in range(6)]
    rows += [f'blue/{n}.png,blue,{2010 + n},,"{HARD_TEXT.replace(chr(34), chr(34) * 2)}"' for n in range(3)]
    table = pictures / "list.csv"
    table.write_text("\n".join(["path,label,year,body mass,place", *rows]), encoding="utf-8")
    add_images(index_folder, model, pictures, list_images([table]))
    return index_folder


@pytest.fixture
def address(tmp_path):
    return str(tmp_path / "engine.db")


@pytest.fixture
def opened(described, address):
    index = SearchIndex.open(described)
    push(index, address)
    gallery = open_gallery(address)
    yield index, gallery
    gallery.close()


WHERE = [
    None,
    'label = "green"',
    'label != "green"',
    "year >= 2003 and year < 2011",
    "year != 2003",
    "`body mass` < 1.5 or place != 'x'",
    'place = "' + HARD_TEXT.replace("\\", "\\\\").replace('"', '\\"') + '"',
    "class in ('red', 'blue', 7)",
    "label = 3",
    "label in (3, 'green')",
    LABELLED,
    f"year in (2001, 2004, 'x', {', '.join(map(str, range(3000, 5000)))})",
]


def test_the_engine_finds_the_same_as_the_local_index(opened):
    index, gallery = opened
    assert isinstance(gallery, MilvusGallery)
    assert gallery.warning is None
    assert (gallery.count, gallery.model) == (index.count, index.model)
    queries = np.random.default_rng(0).normal(size=(5, 48)).astype(np.float32)
    queries = np.concatenate([queries, index.vectors_of([3, 9])])
    for where in WHERE:
        for k in (1, 6, 100):
            assert gallery.search(queries, k, where) == index.search(queries, k, where)
    assert len(index.search(queries, 100, WHERE[-1])[0]) == 2
    assert len(index.search(queries, 100, WHERE[6])[0]) == 3  # the hard text was really compared
    assert gallery.search(queries, 4, leave_out=[3, 5]) == index.search(queries, 4, leave_out=[3, 5])


def test_more_images_than_the_engine_gives_at_once_are_refused(opened, monkeypatch):
    index, gallery = opened
    queries = index.vectors_of([3])
    monkeypatch.setattr(vector_engine, "MOST_RESULTS", index.count - 1)
    for k in (index.count, 20_000):
        with pytest.raises(UserError, match=rf"^k = {k:,}: Milvus gives at most {index.count - 1} images at once; "):
            gallery.search(queries, k)
    assert len(gallery.search(queries, index.count - 1)[0]) == index.count - 1
    monkeypatch.undo()
    assert len(gallery.search(queries, 20_000)[0]) == index.count, "all that there are"


def test_the_engine_knows_what_the_index_knows(opened):
    index, gallery = opened
    assert gallery.label_counts() == index.label_counts()
    assert gallery.attribute_values() == index.attribute_values()
    for where in ("year = '2003'", "year = 2003", "label = 3", "label = 'RED'"):
        assert gallery.notes_on(where) == index.notes_on(where)
    assert gallery.items([4, 20, 1]) == index.items([4, 20, 1])
    assert np.array_equal(gallery.vectors_of([4, 20]), index.vectors_of([4, 20]))
    with pytest.raises(KeyError):
        gallery.items([999])
    for limit in (5, 100):
        ours, theirs = index.sample(limit), gallery.sample(limit)
        assert np.array_equal(ours.ids, theirs.ids)
        assert ours.labels == theirs.labels
        assert np.array_equal(ours.vectors, theirs.vectors)


def test_the_engine_tells_images_without_a_label(address, tmp_path, pictures, model):
    folder = tmp_path / "some.index"
    add_images(folder, model, pictures, list_images([pictures / "red"]))
    (pictures / "list.csv").write_text("path,label\nred/3.png,crimson\n")
    add_images(folder, model, pictures, list_images([pictures / "list.csv"]))
    index = SearchIndex.open(folder)
    push(index, address)
    gallery = open_gallery(address)
    query = index.vectors_of([1])
    assert gallery.search(query, 6) == index.search(query, 6)
    assert gallery.search(query, 6, LABELLED) == index.search(query, 6, LABELLED)
    assert [hit.item.label for hit in gallery.search(query, 6, LABELLED)[0]] == ["crimson"]
    gallery.close()


def sent_and_deleted(done):
    assert not done.went_on
    return done.sent, done.deleted


def test_a_second_push_sends_only_what_changed(described, address, pictures, model):
    assert sent_and_deleted(push(SearchIndex.open(described), address)) == (24, 0)
    assert sent_and_deleted(push(SearchIndex.open(described), address)) == (0, 0)
    remove_images(described, [pictures / "red" / "0.png"])
    table = pictures / "other.csv"
    table.write_text("path,label\nblue/4.png,navy\n")
    add_images(described, model, pictures, list_images([table]))
    assert sent_and_deleted(push(SearchIndex.open(described), address)) == (1, 1)
    gallery = open_gallery(address)
    index = SearchIndex.open(described)
    query = index.vectors_of(index.ids[:1].tolist())
    assert gallery.search(query, 30) == index.search(query, 30)
    gallery.close()


def test_an_index_that_was_made_anew_sends_images_that_have_changed(address, tmp_path, model):
    pictures, folder = write_pictures(tmp_path / "pictures"), tmp_path / "colours.index"
    add_images(folder, model, pictures, list_images([pictures]))
    push(SearchIndex.open(folder), address)
    shutil.rmtree(folder)
    write_picture(pictures / "red" / "0.png", (10, 10, 240), 7)  # another picture, of the same name and id
    add_images(folder, model, pictures, list_images([pictures]))
    index = SearchIndex.open(folder)
    assert sent_and_deleted(push(index, address)) == (1, 0)
    gallery = open_gallery(address)
    query = index.vectors_of([1])
    assert gallery.search(query, 24) == index.search(query, 24)
    gallery.close()


def test_a_second_push_loads_what_the_engine_released(described, address):
    push(SearchIndex.open(described), address)
    client = vector_engine.connect(address)
    client.release_collection("colours")  # as an embedded engine does when its process ends
    client.close()
    assert sent_and_deleted(push(SearchIndex.open(described), address)) == (0, 0)


def test_a_push_that_was_cut_off_goes_on(described, address, monkeypatch):
    monkeypatch.setattr(vector_engine, "BATCH", 10)
    index = SearchIndex.open(described)
    calls = []

    def stop_after_two(done, total):
        calls.append((done, total))
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        push(index, address, stop_after_two)
    half = open_gallery(address)
    assert half.count == 20
    assert "is not whole" in half.warning
    assert "20 images where the index has 24. Finish it with `ccp index push INDEX" in half.warning
    half.close()
    assert push(index, address) == Pushed(f"{address}#colours", 4, 0, went_on=True)
    whole = open_gallery(address)
    assert (whole.count, whole.warning) == (24, None)
    whole.close()


@pytest.mark.parametrize(("step", "calls_before"), [("_write_about", 0), ("_make_collection", 1), ("_send", 0)])
def test_a_push_that_was_cut_off_at_its_start_goes_on(described, address, monkeypatch, step, calls_before):
    index = SearchIndex.open(described)
    before = iter([getattr(vector_engine, step)] * calls_before)

    def stop(*arguments, **options):
        for call in before:
            return call(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(vector_engine, step, stop)
        with pytest.raises(KeyboardInterrupt):
            push(index, address)
    if step == "_send":
        begun = open_gallery(address)
        assert begun.count == 0
        assert "is not whole" in begun.warning
        begun.close()
    else:
        with pytest.raises(UserError, match="cut off before it sent an image; finish it with `ccp index push INDEX"):
            open_gallery(address)
    assert push(index, address).sent == 24
    whole = open_gallery(address)
    assert (whole.count, whole.warning) == (24, None)
    whole.close()


def test_calls_that_fail_are_repeated_then_explained(monkeypatch):
    monkeypatch.setattr(vector_engine, "FIRST_PAUSE_SECONDS", 0.0)
    failures = [ConnectionError("no route"), TimeoutError("late")]

    def call():
        if failures:
            raise failures.pop()
        return "answer"

    assert vector_engine._with_patience(call) == "answer"
    failures.extend(ConnectionError("no route") for _ in range(9))
    with pytest.raises(UserError, match=r"failed 5 times \(no route\); the same command goes on"):
        vector_engine._with_patience(call)


def test_another_model_and_other_programs_are_refused(described, address, tmp_path, model):
    index = SearchIndex.open(described)
    push(index, address + "#birds")
    other = tmp_path / "other.index"
    model.digest, model.name = "e" * 32, "other"
    add_images(other, model, tmp_path, list_images([tmp_path / "pictures"]))
    with pytest.raises(UserError, match="holds vectors of the model stand-in"):
        push(SearchIndex.open(other), address + "#birds")
    push(SearchIndex.open(other), address)
    with pytest.raises(UserError, match="holds the collections birds, other; name one"):
        open_gallery(address)
    with pytest.raises(UserError, match="holds no index 'owls'"):
        open_gallery(address + "#owls")
    named = open_gallery(address + "#birds")
    assert named.model == index.model
    named.close()


def test_addresses():
    assert [is_address(text) for text in ("http://h:1", "x.db", "x.db#a", "birds.index", "a/b")] == [True] * 3 + [
        False
    ] * 2
    assert Address.read("x.db#a") == Address("x.db", "a")
    with pytest.raises(UserError, match="cannot be the name of a collection"):
        Address.read("x.db#a; drop")
    with pytest.raises(UserError, match=r"There is no nowhere\.db"):
        open_gallery("nowhere.db")
    with pytest.raises(UserError, match="There is no index nowhere"):
        open_gallery("nowhere")


def test_an_engine_that_is_not_there_is_named():
    with pytest.raises(UserError, match=r"The vector engine http://127.0.0.1:1 cannot be reached"):
        open_gallery("http://127.0.0.1:1")
