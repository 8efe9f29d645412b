"""Writing an index: only what changed, never half, never two at once, never with another model."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from timeit import timeit

import numpy as np
import pytest
from PIL import Image
from support.pictures import write_picture
from support.stand_in_model import StandInModel

from ccp_dml.errors import UserError
from ccp_dml.serving.listed_images import ListedImage, list_images
from ccp_dml.serving.search import index_store
from ccp_dml.serving.search.index import SearchIndex
from ccp_dml.serving.search.index_plan import Changes
from ccp_dml.serving.search.index_store import alone_writing, read_manifest
from ccp_dml.serving.search.index_writer import add_images, refresh, remove_images


def paths_of(folder):
    index = SearchIndex.open(folder)
    return [item.path for item in index.items(index.ids.tolist())]


def check_whole(folder, model):
    """Every stored vector is that of its image, whatever happened before."""
    index = SearchIndex.open(folder)
    items = index.items(index.ids.tolist())
    assert np.array_equal(index.vectors_of(index.ids.tolist()), model.embed([Path(item.path) for item in items]))
    assert sorted(os.listdir(folder)) == sorted(
        ["manifest.json", *(stored.name for stored in index.manifest.files.values())]
    )
    return index


def unfinished_of(folder):
    return folder.parent / f".{folder.name}.part"


def add(folder, model, given):
    return add_images(folder, model, folder.parent / "model", list_images(given))


def test_all_images_are_stored_with_their_vectors(index_folder, pictures, model):
    index = check_whole(index_folder, model)
    assert index.count == 24
    assert index.label_counts() == {"<b>bold": 6, "blue": 6, "green": 6, "red": 6}
    assert paths_of(index_folder) == [str(image.path) for image in list_images([pictures])]


def test_a_second_addition_embeds_only_what_is_new_or_changed(index_folder, pictures, model):
    write_picture(pictures / "red" / "new.png", (190, 20, 30), 7)
    write_picture(pictures / "red" / "0.png", (20, 190, 30), 8)
    os.utime(pictures / "red" / "1.png", (1, 1))  # another time, the same content
    changes = add(index_folder, model, [pictures])
    assert (changes.added, changes.embedded_again, changes.unchanged) == (1, 1, 23)
    assert model.embedded == 2
    check_whole(index_folder, model)
    generation = read_manifest(index_folder).generation
    assert add(index_folder, model, [pictures]) == Changes(unchanged=25)
    assert read_manifest(index_folder).generation == generation  # nothing to do, nothing written


def test_ids_are_never_given_twice(index_folder, pictures, model):
    before = SearchIndex.open(index_folder).ids.tolist()
    remove_images(index_folder, [pictures / "red"])
    add(index_folder, model, [pictures])
    after = SearchIndex.open(index_folder).ids.tolist()
    assert set(before) & set(after) == set(after) - set(range(25, 31))
    assert max(after) == 30


def test_a_moved_image_is_recognised_by_its_content(index_folder, pictures, model):
    (pictures / "red" / "0.png").rename(pictures / "red" / "renamed.png")
    changes = add(index_folder, model, [pictures])
    assert (changes.moved, changes.added, model.embedded) == (1, 0, 0)
    assert str(pictures / "red" / "renamed.png") in paths_of(index_folder)
    assert str(pictures / "red" / "0.png") not in paths_of(index_folder)


def test_a_copy_is_a_new_image(index_folder, pictures, model):
    shutil.copy(pictures / "red" / "0.png", pictures / "red" / "copy.png")
    assert add(index_folder, model, [pictures]).added == 1


def test_labels_and_attributes_change_without_embedding(index_folder, pictures, model):
    table = pictures / "list.csv"
    table.write_text("path,label,year\nred/0.png,crimson,2020\n")
    changes = add(index_folder, model, [table])
    assert (changes.relabelled, model.embedded) == (1, 0)
    index = SearchIndex.open(index_folder)
    (hits,) = index.search(np.zeros((1, 48), np.float32), 5, "year = 2020")
    assert [(hit.item.label, hit.item.attributes) for hit in hits] == [("crimson", {"year": 2020})]
    add(index_folder, model, [pictures / "red" / "0.png"])  # a listing that says nothing changes nothing
    assert SearchIndex.open(index_folder).label_counts()["crimson"] == 1


def described(folder):
    index = SearchIndex.open(folder)
    return {
        "/".join(Path(item.path).parts[-2:]): (item.label, item.attributes) for item in index.items(index.ids.tolist())
    }


def test_what_a_listing_does_not_state_stays(tmp_path, pictures, model):
    folder, years, places = tmp_path / "x.index", tmp_path / "years.csv", tmp_path / "places.csv"
    years.write_text("path,year\npictures/red/0.png,2020\npictures/red/1.png,2021\n")
    places.write_text("path,year,place\npictures/red/0.png,,Wald\npictures/red/1.png,2022,\n")
    inputs = (pictures / "red", pictures, years, pictures, places, pictures)
    assert [add(folder, model, [given]).relabelled for given in inputs] == [0, 6, 2, 0, 2, 0]
    known = described(folder)
    assert known["red/0.png"] == ("red", {"year": 2020, "place": "Wald"})
    assert known["red/1.png"] == ("red", {"year": 2022})
    assert known["red/2.png"] == ("red", {})


def test_a_changed_or_moved_image_keeps_what_is_known_but_its_old_subfolder(tmp_path, model):
    birds, folder = tmp_path / "birds", tmp_path / "x.index"
    for number, name in enumerate(("changed", "moved", "moved alone")):
        write_picture(birds / "wren" / "female" / f"{name}.png", (90, 90, 90), number)
    table = tmp_path / "years.csv"
    table.write_text("path,year\n" + "".join(f"{path},2020\n" for path in birds.rglob("*.png")))
    add(folder, model, [birds, table])
    write_picture(birds / "wren" / "female" / "changed.png", (9, 9, 9), 9)
    (birds / "wren" / "female" / "moved.png").rename(birds / "wren" / "moved.png")
    add(folder, model, [birds / "wren" / "female" / "changed.png"])
    add(folder, model, [birds])
    (birds / "wren" / "female" / "moved alone.png").rename(birds / "moved alone.png")
    add(folder, model, [birds])
    assert described(folder) == {
        "female/changed.png": ("wren", {"folder": "female", "year": 2020}),
        "wren/moved.png": ("wren", {"year": 2020}),
        "birds/moved alone.png": ("wren", {"folder": "female", "year": 2020}),  # its new place states nothing
    }


def test_refresh_lists_what_is_missing_and_drops_it_only_if_asked(index_folder, pictures, model):
    (pictures / "red" / "0.png").unlink()
    write_picture(pictures / "blue" / "1.png", (9, 9, 9), 1)
    changes = refresh(index_folder, model)
    assert changes.missing == [str(pictures / "red" / "0.png")]
    assert changes.embedded_again == 1
    assert SearchIndex.open(index_folder).count == 24  # what is gone can still be found
    assert SearchIndex.open(index_folder).missing_images() == changes.missing
    assert refresh(index_folder, model, drop_missing=True).removed == 1
    assert check_whole(index_folder, model).count == 23


@pytest.mark.parametrize("again", [refresh, lambda folder, model: add(folder, model, [folder.parent / "pictures"])])
def test_an_image_that_cannot_be_read_for_a_while_stays_and_is_tried_again(index_folder, pictures, model, again):
    before = read_manifest(index_folder)
    half_written = pictures / "blue" / "2.png"
    half_written.write_text("half of a picture")
    for _ in range(2):
        changes = again(index_folder, model)
        assert changes.broken == [(str(half_written), "not an image")]
        assert (changes.embedded_again, changes.unchanged) == (0, 23)
        assert read_manifest(index_folder) == before
    write_picture(half_written, (9, 9, 9), 1)
    changes = again(index_folder, model)
    assert (changes.embedded_again, changes.broken) == (1, [])
    assert check_whole(index_folder, model).count == 24


def test_what_is_there_but_cannot_be_opened_is_not_missing(index_folder, pictures, model):
    (pictures / "red" / "0.png").unlink()
    (pictures / "red" / "0.png").mkdir()
    changes = refresh(index_folder, model, drop_missing=True)
    assert changes.broken == [(str(pictures / "red" / "0.png"), "Is a directory")]
    assert (changes.missing, changes.removed) == ([], 0)
    assert SearchIndex.open(index_folder).count == 24


def test_images_in_a_folder_that_may_not_be_read_are_neither_missing_nor_moved(
    index_folder, pictures, model, monkeypatch
):
    shutil.copytree(pictures / "red", pictures / "copies")
    look = os.stat

    def look_elsewhere(path, **options):
        if str(path).startswith(str(pictures / "red")):
            raise PermissionError(13, "Permission denied", str(path))
        return look(path, **options)

    monkeypatch.setattr(os, "stat", look_elsewhere)  # whoever runs the tests may be allowed everything
    assert SearchIndex.open(index_folder).missing_images() == []
    changes = add(index_folder, model, [pictures / "copies"])
    assert (changes.added, changes.moved) == (6, 0)


def test_removal_by_path_folder_and_condition(index_folder, pictures, model):
    assert remove_images(index_folder, [pictures / "red", pictures / "blue" / "0.png"]).removed == 7
    assert remove_images(index_folder, where='label = "green"').removed == 6
    assert check_whole(index_folder, model).count == 11
    with pytest.raises(UserError, match="has no image"):
        remove_images(index_folder, [pictures / "red"])
    assert remove_images(index_folder, [pictures / "blue" / "1.png"], where='label = "<b>bold"').removed == 7
    assert remove_images(index_folder, where='label in ("blue", "<b>bold")').removed == 4
    empty = SearchIndex.open(index_folder)
    assert empty.search(np.ones((1, 48), np.float32), 3) == [[]]


def test_many_paths_are_removed_about_as_fast_as_one(made_up_index):
    folder = made_up_index(2000).folder
    one, many = (
        timeit(lambda some=some: remove_images(folder, some), number=1)
        for some in (["/p/0.png"], [f"/p/{number}.png" for number in range(1, 501)])
    )
    assert SearchIndex.open(folder).count == 1499
    assert many < 10 * one


def test_a_folder_is_not_taken_for_another_whose_name_begins_alike(index_folder, pictures, model):
    shutil.copytree(pictures / "red", pictures / "red wine")
    add(index_folder, model, [pictures])
    assert remove_images(index_folder, [pictures / "red"]).removed == 6
    assert remove_images(index_folder, ["/"]).removed == 24


def test_paths_to_remove_may_lead_through_parent_folders(index_folder, pictures, monkeypatch):
    monkeypatch.chdir(pictures / "blue")
    assert remove_images(index_folder, ["../red/0.png", "../green", "1.png"]).removed == 8


def test_broken_and_missing_images_are_listed(tmp_path, pictures, model):
    (pictures / "red" / "broken.png").write_bytes(b"")
    listed = [*list_images([pictures]), ListedImage(tmp_path / "gone.png")]
    changes = add_images(tmp_path / "x.index", model, tmp_path, listed)
    assert changes.broken == [(str(pictures / "red" / "broken.png"), "not an image")]
    assert changes.missing == [str(tmp_path / "gone.png")]
    assert changes.added == 24


def test_a_name_that_is_no_text_is_left_out(tmp_path, pictures, model):
    os.rename(os.fsencode(pictures / "red" / "0.png"), os.fsencode(pictures / "red") + b"/\xff.png")
    changes = add(tmp_path / "x.index", model, [pictures])
    assert changes.added == 23
    assert changes.broken[0][1] == "its name is not text in UTF-8"


def test_nothing_readable_is_an_error_and_leaves_nothing(tmp_path, model):
    (tmp_path / "a.png").write_text("text")
    with pytest.raises(UserError, match=r"None of the images can be read: .*a.png \(not an image\)"):
        add(tmp_path / "x.index", model, [tmp_path / "a.png"])
    assert not (tmp_path / "x.index").exists()


def test_another_model_is_refused(index_folder, pictures):
    other = StandInModel("other", digest="e" * 32)
    for attempt in (lambda: add(index_folder, other, [pictures]), lambda: refresh(index_folder, other)):
        with pytest.raises(
            UserError, match=r"holds vectors of the model stand-in \(dddddddd\), not of .* \(eeeeeeee\)"
        ):
            attempt()


def test_a_second_writer_is_refused(index_folder, pictures, model):
    with alone_writing(index_folder):
        for attempt in (
            lambda: add(index_folder, model, [pictures]),
            lambda: refresh(index_folder, model),
            lambda: remove_images(index_folder, [pictures]),
        ):
            with pytest.raises(UserError, match="being written by another process"):
                attempt()
    assert add(index_folder, model, [pictures]) == Changes(unchanged=24)


def test_a_foreign_folder_is_left_alone(tmp_path, pictures, model):
    with pytest.raises(UserError, match="exists and is no index"):
        add(pictures, model, [pictures])
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="exists and is no index"):
        add(tmp_path / "file", model, [pictures])


def test_an_error_in_the_middle_leaves_the_old_index(index_folder, pictures, model, monkeypatch):
    before = paths_of(index_folder)
    write_picture(pictures / "red" / "new.png", (190, 20, 30), 7)
    monkeypatch.setattr(index_store.NextGeneration, "commit", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        add(index_folder, model, [pictures])
    monkeypatch.undo()
    assert paths_of(index_folder) == before
    check_whole(index_folder, model)


OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "sqlite3.connect")


def killed_before(step, folder, write):
    """Run `write` in a child that is killed before its operation number `step` on `folder`; its exit code, or -9.

    What a build keeps beside the folder counts, too.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    calls = 0

    def count(event, arguments):
        nonlocal calls
        if event in OPERATIONS and folder in str(arguments[0]):
            calls += 1
            if calls == step:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.addaudithook(count)
        write()
    except BaseException:
        os._exit(1)
    os._exit(0)


@pytest.mark.parametrize("exists", [False, True])
def test_killed_at_any_step_the_index_is_old_or_new(tmp_path, pictures, model, exists):
    """The writer is killed before each of its operations on the folder in turn, until it lives to the end."""
    folder = tmp_path / "x.index"
    old = 0
    if exists:
        add(folder, model, [pictures])
        old = 24
    write_picture(pictures / "red" / "new.png", (190, 20, 30), 7)
    template = tmp_path / "template"
    if exists:
        shutil.copytree(folder, template)
    seen = set()
    for step in range(1, 100):
        for leftover in (folder, unfinished_of(folder)):
            shutil.rmtree(leftover, ignore_errors=True)
        if exists:
            shutil.copytree(template, folder)
        ended = killed_before(step, folder.name, lambda: add(folder, model, [pictures]))
        assert ended in (0, -signal.SIGKILL)
        if (folder / "manifest.json").exists():
            count = SearchIndex.open(folder).count
            seen.add(count)
            assert count in (old, 25)
        else:
            assert not exists
            seen.add(0)
        if ended == 0:
            break
        add(folder, model, [pictures])
        assert check_whole(folder, model).count == 25  # whoever comes next goes on from there
        assert not unfinished_of(folder).exists()
    else:
        raise AssertionError("the writer never came to its end")
    assert seen == {old, 25}


def test_a_killed_writer_leaves_no_lock(index_folder, pictures, model):
    program = (
        "import sys, time; from pathlib import Path; from ccp_dml.serving.search.index_store import alone_writing\n"
        "with alone_writing(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(index_folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(UserError, match="another process"):
        add(index_folder, model, [pictures])
    process.kill()
    process.wait()
    process.stdout.close()
    assert add(index_folder, model, [pictures]) == Changes(unchanged=24)


def test_readers_go_on_while_a_writer_replaces_the_files(index_folder, pictures, model):
    reader = SearchIndex.open(index_folder)
    query = model.embed([Image.new("RGB", (8, 8), (210, 50, 50))])
    before = reader.search(query, 5)
    remove_images(index_folder, [pictures / "red"])
    time.sleep(0.01)
    assert reader.search(query, 5) == before
    assert all(hit.item.label != "red" for hit in SearchIndex.open(index_folder).search(query, 5)[0])


class Kill(BaseException):
    pass


def killed_after(images):
    def report(done, total):
        assert done <= total == 24
        if done >= images:
            raise Kill

    return report


def test_a_killed_build_is_not_begun_anew(tmp_path, pictures):
    model, folder = StandInModel(batch=4), tmp_path / "x.index"
    listed = list_images([pictures])
    with pytest.raises(Kill):
        add_images(folder, model, tmp_path, listed, report=killed_after(12))
    assert not folder.exists()
    assert model.embedded == 12
    reports = []
    changes = add_images(folder, model, tmp_path, listed, report=lambda *numbers: reports.append(numbers))
    assert (changes.added, changes.resumed, model.embedded) == (24, 12, 24)
    assert reports == [(12, 24), (16, 24), (20, 24), (24, 24)]
    check_whole(folder, model)
    assert paths_of(folder) == [str(image.path) for image in listed]
    assert not unfinished_of(folder).exists()


def test_images_that_come_and_go_between_do_not_matter(tmp_path, pictures):
    model, folder = StandInModel(batch=4), tmp_path / "x.index"
    with pytest.raises(Kill):
        add_images(folder, model, tmp_path, list_images([pictures]), report=killed_after(12))
    done = [image.path for image in list_images([pictures])][:12]
    done[0].unlink()
    done[1].rename(done[1].with_name("renamed.png"))
    write_picture(done[2], (1, 2, 3), 9)  # another picture under the same name
    changes = add(folder, model, [pictures])
    assert (changes.added, changes.resumed) == (23, 10)
    check_whole(folder, model)


def test_what_another_model_embedded_is_not_taken_over(tmp_path, pictures):
    folder, listed = tmp_path / "x.index", list_images([pictures])
    with pytest.raises(Kill):
        add_images(folder, StandInModel(batch=4), tmp_path, listed, report=killed_after(12))
    other = StandInModel("other", digest="e" * 32)
    changes = add_images(folder, other, tmp_path, listed)
    assert (changes.resumed, other.embedded) == (0, 24)


def test_given_vectors_are_stored_instead_of_computed(tmp_path, pictures, model):
    listed = list_images([pictures])
    marks = np.eye(24, model.dim, dtype=np.float32)
    known = {
        image.path: ((image.path.stat().st_size, image.path.stat().st_mtime_ns), mark)
        for image, mark in zip(listed[:20], marks, strict=False)
    }
    os.utime(listed[0].path, (1, 1))  # changed since its vector was computed, for all that anybody knows
    folder = tmp_path / "x.index"
    changes = add_images(folder, model, tmp_path, listed, known=known)
    assert (changes.added, changes.read, model.embedded) == (24, 19, 5)
    stored = SearchIndex.open(folder).vectors
    np.testing.assert_array_equal(stored[1:20], marks[1:20])
    np.testing.assert_array_equal(stored[0], model.vector(listed[0].path).astype(np.float32))


def test_two_files_of_one_content_are_embedded_once(tmp_path, pictures, model):
    shutil.copy(pictures / "red" / "0.png", pictures / "red" / "copy.png")
    for name in ("one.png", "two.png"):
        (pictures / "red" / name).write_text("no picture")
    folder = tmp_path / "x.index"
    changes = add(folder, model, [pictures])
    assert (changes.added, model.embedded) == (25, 24)
    assert [Path(path).name for path, _ in changes.broken] == ["one.png", "two.png"]
    check_whole(folder, model)


def test_the_index_notes_where_its_model_is_now(index_folder, pictures, model, tmp_path):
    for path, write in {
        tmp_path / "moved": lambda path: add_images(index_folder, model, path, list_images([pictures])),
        tmp_path / "again": lambda path: refresh(index_folder, model, model_path=path),
    }.items():
        assert write(path) == Changes(unchanged=24)
        assert read_manifest(index_folder).model.path == str(path)
        check_whole(index_folder, model)
    refresh(index_folder, model)
    assert read_manifest(index_folder).model.path == str(tmp_path / "again")


def test_removing_images_keeps_what_a_killed_build_embedded(index_folder, pictures, model):
    write_picture(pictures / "red" / "new.png", (190, 20, 30), 7)

    def stop(done, total):
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        add_images(index_folder, model, Path("model"), list_images([pictures]), report=stop)
    remove_images(index_folder, [pictures / "blue"])
    changes = add(index_folder, model, [pictures / "red"])
    assert (changes.added, changes.resumed) == (1, 1)
    assert not unfinished_of(index_folder).exists()
