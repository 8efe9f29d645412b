"""Vectors of many images in one file: whole or not there, and the same bytes however often it was interrupted."""

import json
import shutil

import numpy as np
import pytest

import ccp_dml as ccp
from ccp_dml.data.features import load_features
from ccp_dml.errors import UserError
from ccp_dml.foundation.locks import lock
from ccp_dml.serving.exports.vectors_file import read_vectors, write_vectors
from ccp_dml.serving.listed_images import ListedImage, list_images

SIZE = 8


@pytest.fixture
def model(photo_run):
    return ccp.load(photo_run[0])


@pytest.fixture
def images(photos):
    return list_images([photos])


class Kill(BaseException):
    pass


def kill_after(images):
    def report(done, total):
        assert total == 80
        if done >= images:
            raise Kill

    return report


def written(model, images, out, **options):
    return write_vectors(model, images, out, batch_size=SIZE, **options)


def test_the_file_holds_features_paths_labels_and_the_model(model, images, photos, tmp_path):
    done = written(model, images, tmp_path / "v.npz")
    assert (done.vectors, done.dim, done.begun_with, done.skipped, done.notes) == (80, 6, 0, [], [])
    with np.load(tmp_path / "v.npz") as file:
        assert set(file.files) == {"features", "paths", "labels", "model", "files", "listed"}
        np.testing.assert_array_equal(file["features"], model.embed(photos, batch_size=SIZE))
        assert file["paths"].tolist() == [str(path) for path in sorted(photos.rglob("*.png"))]
        assert file["labels"].tolist() == [f"class_{n:02}" for n in range(16) for _ in range(5)]
        assert file["model"] == model.digest
    assert [file.name for file in tmp_path.iterdir()] == ["v.npz"]


def test_training_reads_it(model, images, tmp_path):
    written(model, images, tmp_path / "v.npz")
    halves = load_features(tmp_path / "v.npz")
    assert len(halves.train) == len(halves.test.queries) == 40
    assert halves.train.class_names[0] == "class_00"


@pytest.mark.parametrize("after", [0, 8, 24, 80])
def test_after_a_kill_the_same_bytes_come_out(model, images, tmp_path, after):
    written(model, images, tmp_path / "whole.npz")
    with pytest.raises(Kill):
        written(model, images, tmp_path / "v.npz", report=kill_after(after))
    assert not (tmp_path / "v.npz").exists()
    done = written(model, images, tmp_path / "v.npz")
    assert done.begun_with == after
    assert (tmp_path / "v.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
    assert not (tmp_path / ".v.npz.part").exists()


def test_broken_images_are_skipped_also_across_a_kill(model, images, tmp_path):
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "empty.png").touch()
    images = [
        *images[:3],
        ListedImage(tmp_path / "text.png", "x"),
        *images[3:30],
        ListedImage(tmp_path / "empty.png", "x"),
    ]
    whole = write_vectors(model, images, tmp_path / "whole.npz", batch_size=SIZE, on_error="skip")
    assert [path.name for path, _ in whole.skipped] == ["text.png", "empty.png"]
    assert whole.vectors == 30

    def kill(done, _):
        if done == 16:
            raise Kill

    with pytest.raises(Kill):
        write_vectors(model, images, tmp_path / "v.npz", batch_size=SIZE, on_error="skip", report=kill)
    again = write_vectors(model, images, tmp_path / "v.npz", batch_size=SIZE, on_error="skip")
    assert (again.begun_with, again.skipped) == (16, whole.skipped)
    assert (tmp_path / "v.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
    with pytest.raises(UserError, match=r"text\.png"):
        write_vectors(model, images, tmp_path / "w.npz", batch_size=SIZE)
    with pytest.raises(UserError, match="none of the 2 images"):
        write_vectors(model, [images[3], images[-1]], tmp_path / "w.npz", on_error="skip")
    assert not (tmp_path / "w.npz").exists()


def test_an_unfinished_file_of_another_request_is_not_gone_on_with(model, images, tmp_path, frozen_run):
    other_images = [*images[1:], images[0]]
    for changed in (
        lambda: written(ccp.load(frozen_run[0]), images, tmp_path / "v.npz"),
        lambda: written(model, other_images, tmp_path / "v.npz"),
        lambda: write_vectors(model, images, tmp_path / "v.npz", batch_size=SIZE + 1),
    ):
        with pytest.raises(Kill):
            written(model, images, tmp_path / "v.npz", report=kill_after(24))
        assert changed().begun_with == 0


@pytest.fixture
def with_a_broken_one(photos, tmp_path):
    """List copies of the photos of which the 21st, in the third batch, is no image."""
    shutil.copytree(photos, tmp_path / "copy")
    images = list_images([tmp_path / "copy"])
    images[20].path.write_text("no image")
    return images


def repair(images):
    shutil.copy(images[0].path, images[20].path)
    return images


@pytest.mark.parametrize(
    ("mend", "on_error"),
    [
        (lambda images: images, "skip"),
        (repair, "raise"),
        (lambda images: images[:20] + images[21:], "raise"),
    ],
    ids=["skip it", "repair it", "remove it"],
)
def test_one_broken_image_costs_nothing_that_was_computed_before(model, with_a_broken_one, tmp_path, mend, on_error):
    out = tmp_path / "v.npz"
    with pytest.raises(UserError, match="not an image"):
        written(model, with_a_broken_one, out)
    images = mend(with_a_broken_one)
    assert written(model, images, out, on_error=on_error).begun_with == 2 * SIZE
    written(model, images, tmp_path / "whole.npz", on_error=on_error)
    assert out.read_bytes() == (tmp_path / "whole.npz").read_bytes()


def test_what_was_skipped_is_not_passed_over_once_it_counts(model, with_a_broken_one, tmp_path):
    with pytest.raises(Kill):
        written(model, with_a_broken_one, tmp_path / "v.npz", on_error="skip", report=kill_after(40))
    with pytest.raises(UserError, match="not an image"):
        written(model, with_a_broken_one, tmp_path / "v.npz")
    assert written(model, repair(with_a_broken_one), tmp_path / "v.npz").begun_with == 2 * SIZE


def test_an_unfinished_file_of_an_earlier_version_is_begun_anew(model, images, tmp_path):
    with pytest.raises(Kill):
        written(model, images, tmp_path / "v.npz", report=kill_after(24))
    folder = tmp_path / ".v.npz.part"
    request = {"model": model.digest, "images": "0" * 64, "batch_size": SIZE, "on_error": "raise"}
    (folder / "request.json").write_text(json.dumps(request))
    (folder / "batches.jsonl").write_text('{"rows": 8, "skipped": []}\n' * 3)
    assert written(model, images, tmp_path / "v.npz").begun_with == 0


def test_an_image_that_changed_since_is_embedded_again(model, photos, tmp_path):
    shutil.copytree(photos, tmp_path / "copy")
    images = list_images([tmp_path / "copy"])
    with pytest.raises(Kill):
        written(model, images, tmp_path / "v.npz", report=kill_after(24))
    shutil.copy(images[-1].path, images[0].path)
    assert written(model, images, tmp_path / "v.npz").begun_with == 0
    with np.load(tmp_path / "v.npz") as file:
        np.testing.assert_allclose(file["features"][0], file["features"][-1], atol=1e-6)


def test_labels_are_left_out_unless_all_are_known(model, images, tmp_path):
    done = written(model, [*images[:4], ListedImage(images[4].path)], tmp_path / "v.npz")
    assert done.notes == [
        "1 of 5 images have no label, so that nothing can be trained on the file; `ccp index` reads it."
    ]
    with np.load(tmp_path / "v.npz") as file:
        assert "labels" not in file


def test_a_split_is_kept(model, images, tmp_path):
    divided = [
        ListedImage(image.path, image.label, {"split": "test" if number % 2 else "train"})
        for number, image in enumerate(images)
    ]
    written(model, divided, tmp_path / "v.npz")
    with np.load(tmp_path / "v.npz") as file:
        assert file["split"].tolist() == ["train", "test"] * 40


def test_two_commands_do_not_write_one_file(model, images, tmp_path):
    with lock(tmp_path / ".v.npz.lock", "busy"), pytest.raises(UserError, match="another process"):
        written(model, images, tmp_path / "v.npz")


def test_a_place_that_cannot_be_written_is_named(model, images, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"v\.npz cannot be written"):
        written(model, images, tmp_path / "file" / "v.npz")
    with pytest.raises(UserError, match=r"does not end with \.npz"):
        written(model, images, tmp_path / "v.txt")


@pytest.mark.parametrize("content", [b"precious", b"PK\3\4 cut off", None])
def test_what_was_not_written_by_this_is_not_replaced(model, images, tmp_path, content):
    out = tmp_path / "v.npz"
    if content is None:
        np.savez(out, features=np.zeros((3, 2)), labels=np.arange(3))
    else:
        out.write_bytes(content)
    before = out.read_bytes()
    with pytest.raises(UserError, match=r"v\.npz is there already and was not written by `ccp embed`; remove it"):
        written(model, images[:4], out)
    assert out.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["v.npz"]
    out.unlink()
    out.mkdir()
    with pytest.raises(UserError, match="is there already"):
        written(model, images[:4], out)


def test_vectors_of_other_images_and_empty_files_are_replaced(model, images, tmp_path):
    (tmp_path / "v.npz").touch()
    written(model, images[:4], tmp_path / "v.npz")
    assert written(model, images[:6], tmp_path / "v.npz").vectors == 6


def test_the_journal_is_plain_json(model, images, tmp_path):
    with pytest.raises(Kill):
        written(model, images, tmp_path / "v.npz", report=kill_after(16))
    lines = (tmp_path / ".v.npz.part" / "batches.jsonl").read_text().splitlines()
    notes = [json.loads(line) for line in lines]
    assert [(note["rows"], note["skipped"]) for note in notes] == [(SIZE, [])] * 2
    assert len({note["contents"] for note in notes}) == 2


def test_what_was_written_is_read_again(model, images, tmp_path):
    described = [ListedImage(images[0].path, None, {"year": 2020, "place": "Aberdeen"}), *images[1:5]]
    written(model, described, tmp_path / "v.npz")
    stored = read_vectors(tmp_path / "v.npz", model)
    assert stored.images == described
    np.testing.assert_array_equal(stored.vectors, model.embed([image.path for image in described], batch_size=SIZE))
    stat = images[0].path.stat()
    state, vector = stored.by_path()[images[0].path]
    assert state == (stat.st_size, stat.st_mtime_ns)
    np.testing.assert_array_equal(vector, stored.vectors[0])


def test_one_long_note_does_not_make_all_others_long(model, images, tmp_path):
    described = [ListedImage(image.path, image.label, {"note": "ö\n"}) for image in images]
    described[3].attributes["note"] = "x" * 100_000
    written(model, described, tmp_path / "v.npz")
    assert (tmp_path / "v.npz").stat().st_size < 300_000
    assert read_vectors(tmp_path / "v.npz", model).images == described


def test_files_of_earlier_versions_are_read(model, images, tmp_path):
    written(model, images[:4], tmp_path / "v.npz")
    texts = [json.dumps({"label": image.label, "attributes": {"year": 2020}}) for image in images[:4]]
    changed_file(tmp_path / "v.npz", listed=np.array(texts))
    assert [image.attributes for image in read_vectors(tmp_path / "v.npz", model).images] == [{"year": 2020}] * 4


def test_vectors_of_another_model_are_refused(model, frozen_run, images, tmp_path):
    written(model, images[:4], tmp_path / "v.npz")
    other = ccp.load(frozen_run[0])
    sentence = rf"v.npz holds vectors of another model \({model.digest[:8]}\) than .* \({other.digest[:8]}\)"
    with pytest.raises(UserError, match=sentence):
        read_vectors(tmp_path / "v.npz", other)


def changed_file(file, **changes):
    with np.load(file) as archive:
        arrays = {name: archive[name] for name in archive.files}
    np.savez(file, **{name: array for name, array in (arrays | changes).items() if array is not None})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"listed": None}, "has no array 'listed': it was not written by `ccp embed`"),
        ({"features": np.zeros((3, 6), np.float32)}, "its vectors are not those of its images"),
        ({"features": np.full((4, 6), np.nan, np.float32)}, "its vectors are not those of its images"),
        ({"files": np.zeros((4, 3), np.int64)}, "its vectors are not those of its images"),
        ({"listed": np.array(["{"] * 4)}, "is damaged"),
        ({"listed": np.array(["{}"] * 3)}, "is damaged"),
        ({"listed": np.full(9, 255, np.uint8)}, "is damaged"),
        ({"paths": np.array([{}] * 4, dtype=object)}, "is damaged"),  # a pickle, which nobody loads
    ],
)
def test_a_damaged_or_foreign_file_is_refused(model, images, tmp_path, changes, message):
    written(model, images[:4], tmp_path / "v.npz")
    changed_file(tmp_path / "v.npz", **changes)
    with pytest.raises(UserError, match=message):
        read_vectors(tmp_path / "v.npz", model)


def test_what_is_no_such_file_is_refused(model, tmp_path):
    with pytest.raises(UserError, match="There is no file"):
        read_vectors(tmp_path / "v.npz", model)
    for content in (b"", b"text", b"PK\3\4 cut off"):
        (tmp_path / "v.npz").write_bytes(content)
        with pytest.raises(UserError, match="is damaged or no file of `ccp embed`"):
            read_vectors(tmp_path / "v.npz", model)
