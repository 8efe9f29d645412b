"""A server sees what writers do to its index, and keeps answering when the index is gone or of another model."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.pictures import write_picture
from support.stand_in_model import StandInModel

from ccp_dml.serving.listed_images import list_images
from ccp_dml.serving.search.index import SearchIndex
from ccp_dml.serving.search.index_writer import add_images, remove_images
from ccp_dml.serving.web import served_gallery
from ccp_dml.serving.web.served_gallery import ServedGallery


@pytest.fixture
def served(index_folder):
    return ServedGallery(SearchIndex.open(index_folder), with_tsne=False)


def add_one(index_folder, model, tmp_path, label="violet"):
    write_picture(tmp_path / "more" / label / "new.png", (150, 40, 220), 5)
    add_images(index_folder, model, tmp_path / "model", list_images([tmp_path / "more"]))


def test_an_index_that_has_not_changed_is_not_opened_again(served):
    assert served.latest() == served.latest()
    assert served.latest().gallery is served.latest().gallery


def test_what_a_writer_adds_and_removes_is_seen(served, index_folder, model, tmp_path):
    before = served.latest()
    assert before.overview.confusions()["queries"] == 24
    add_one(index_folder, model, tmp_path, label="red")
    add_one(index_folder, model, tmp_path)
    after = served.latest()
    assert after.gallery.count == before.gallery.count + 2
    assert "violet" in after.gallery.label_counts()
    assert after.gallery.version != before.gallery.version
    assert after.overview.confusions()["queries"] == 25
    remove_images(index_folder, where='label = "violet"')
    assert served.latest().gallery.count == 25
    assert before.gallery.search(before.gallery.vectors_of([1]), 2)  # a request that began before ends well


def test_an_index_that_was_removed_and_made_again_is_seen(served, index_folder, model, tmp_path):
    shutil.rmtree(index_folder)
    add_one(index_folder, model, tmp_path)
    assert served.latest().gallery.count == 1
    assert served.latest().warning is None


def test_an_index_that_is_gone_is_answered_from_memory_with_a_warning(served, index_folder, monkeypatch):
    monkeypatch.setattr(served_gallery, "SECONDS_BETWEEN_ATTEMPTS", 0.0)
    first = served.latest()
    index_folder.rename(index_folder.with_name("elsewhere"))
    latest = served.latest()
    assert latest.gallery is first.gallery
    assert "colours.index has changed and cannot be opened: There is no index" in latest.warning
    assert "as it was before" in latest.warning
    index_folder.with_name("elsewhere").rename(index_folder)
    assert served.latest().warning is None


def test_an_index_of_another_model_is_not_searched(served, index_folder, tmp_path, caplog):
    shutil.rmtree(index_folder)
    add_one(index_folder, StandInModel("other", digest="e" * 32), tmp_path)
    for _ in range(3):
        latest = served.latest()
    assert latest.gallery.count == 24
    assert "another model (other): start `ccp serve` again" in latest.warning
    assert caplog.text.count("another model") == 1  # said once, not with every request


def test_a_damaged_index_is_not_read_with_every_request(served, index_folder, model, tmp_path, monkeypatch):
    add_one(index_folder, model, tmp_path)
    for file in index_folder.glob("vectors-*"):
        file.write_bytes(b"too short")
    opened = []
    open_it = SearchIndex.open
    monkeypatch.setattr(SearchIndex, "open", lambda folder: [opened.append(folder), open_it(folder)][1])
    for _ in range(3):
        assert "damaged" in served.latest().warning
    assert len(opened) == 1


def test_who_comes_while_the_index_is_being_opened_gets_the_new_one(served, index_folder, model, tmp_path, monkeypatch):
    open_it, is_opening, go_on = SearchIndex.open, threading.Event(), threading.Event()

    def open_slowly(folder):
        is_opening.set()
        go_on.wait(10)
        return open_it(folder)

    monkeypatch.setattr(SearchIndex, "open", open_slowly)
    add_one(index_folder, model, tmp_path)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(served.latest)
        assert is_opening.wait(10)
        second = threads.submit(served.latest)
        go_on.set()
        assert [found.result().gallery.count for found in (first, second)] == [25, 25]
