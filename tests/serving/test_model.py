"""A model embeds images as its run did, whatever form they are given in, and says what it cannot use."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from support.small_runs import trained

import ccp_dml as ccp
from ccp_dml.data.glyphs import load_glyphs
from ccp_dml.errors import UserError
from ccp_dml.runs.datasets import build_data


def stored(folder):
    return load_file(folder / "test_embeddings.safetensors")["queries.embeddings"].numpy()


def paths_of_test_images(config):
    part = build_data(config.data).test.queries
    return [part.source.paths[position] for position in part.positions.tolist()]


def test_a_run_on_photos_embeds_its_test_images_bit_for_bit(photo_run):
    folder, config = photo_run
    vectors = ccp.load(folder).embed(paths_of_test_images(config))
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, stored(folder))


def smooth_photos(folder, classes=16, per_class=4):
    """Write JPEG files that are large enough to be decoded at a fraction of their size."""
    rng = np.random.default_rng(0)
    for number in range(classes * per_class):
        file = folder / f"class_{number % classes}" / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, size=(5, 6, 3), dtype=np.uint8))
        coarse.resize((200, 160), Image.Resampling.BICUBIC).save(file, quality=95)
    return folder


def test_a_run_that_decoded_at_reduced_size_goes_on_doing_so(make_photo_run, tmp_path):
    root = smooth_photos(tmp_path / "large")
    folder, config = make_photo_run(f"data.root={root}", "data.reduced_decoding=true")
    model = ccp.load(folder)
    np.testing.assert_array_equal(model.embed(paths_of_test_images(config)), stored(folder))
    model.save(tmp_path / "saved")
    assert ccp.load(tmp_path / "saved").preprocessing.reduced_decoding


def test_a_hurried_model_is_the_same_model_with_almost_the_same_vectors(photo_run, tmp_path):
    root = smooth_photos(tmp_path / "large")
    exact = ccp.load(photo_run[0], "cpu")
    vectors = exact.embed(root)
    for options, close in (({"channels_last": True}, 1e-5), ({"reduced_decoding": True}, 0.2)):
        hurried = ccp.load(photo_run[0], "cpu", **options)
        assert hurried.digest == exact.digest
        np.testing.assert_allclose(hurried.embed(root), vectors, rtol=0, atol=close)
        hurried.save(tmp_path / str(close))
        np.testing.assert_array_equal(ccp.load(tmp_path / str(close), "cpu").embed(root), vectors)
    reduced = ccp.load(photo_run[0], "cpu", reduced_decoding=True).embed(root)
    assert not np.array_equal(reduced, vectors)  # it was really decoded otherwise


def test_the_bytes_of_a_file_give_the_vectors_of_the_file(photo_run, tmp_path):
    files = sorted(smooth_photos(tmp_path / "large", classes=2, per_class=1).rglob("*.jpg"))
    for options in ({}, {"reduced_decoding": True}):
        model = ccp.load(photo_run[0], "cpu", **options)
        np.testing.assert_array_equal(model.embed([file.read_bytes() for file in files]), model.embed(files))
        np.testing.assert_array_equal(model.embed(files[0].read_bytes()), model.embed(files[0]))
    with files[0].open("rb") as opened, pytest.raises(UserError, match=r"or the bytes of a file, not BufferedReader"):
        model.embed(opened)
    with pytest.raises(UserError, match=r"cannot embed bytes at position 0 \(not an image"):
        model.embed(b"no picture")
    assert repr(model) == f"<EmbeddingModel {model.name}: 6 numbers per image, {model.digest[:8]}, on cpu>"


@pytest.mark.parametrize("precision", ["half", "single"])
def test_a_frozen_run_joins_its_backbone_bit_for_bit(make_frozen_run, precision):
    folder, config = make_frozen_run(f"model.feature_precision={precision}")
    np.testing.assert_array_equal(ccp.load(folder).embed(paths_of_test_images(config)), stored(folder))


def test_a_frozen_run_in_bf16_works_in_bf16(make_frozen_run):
    folder, config = make_frozen_run("run.precision=bf16-mixed")
    np.testing.assert_array_equal(ccp.load(folder).embed(paths_of_test_images(config)), stored(folder))


def test_a_run_on_glyphs_takes_grey_images_bit_for_bit(tmp_path):
    folder, config = trained(tmp_path / "glyphs", ["glyphs", "c2"], ["data.classes=8"])
    part = build_data(config.data).test.queries
    pictures = [part.source.picture(position) for position in part.positions.tolist()]
    model = ccp.load(folder)
    np.testing.assert_array_equal(model.embed(pictures), stored(folder))
    arrays = [np.asarray(picture) for picture in pictures[:128]]
    np.testing.assert_array_equal(model.embed(arrays), stored(folder)[:128])
    larger = pictures[0].resize((64, 96))
    assert model.embed(larger).shape == (1, model.dim)
    assert model.class_names == load_glyphs().train.class_names[2:8]


def test_a_run_on_vectors_takes_vectors_and_no_images(features, tmp_path):
    folder, config = trained(tmp_path / "run", ["features", "c2"], [f"data.path={features}"])
    part = build_data(config.data).test.queries
    vectors = part.source.features[part.positions].numpy()
    model = ccp.load(folder)
    np.testing.assert_array_equal(model.embed(vectors), stored(folder))
    assert model.transform is None
    assert model.embed(vectors[0]).shape == (1, model.dim)
    assert model.embed([]).shape == (0, model.dim)
    with pytest.raises(UserError, match="embeds vectors of 12 numbers, not images"):
        model.embed("a.png")
    with pytest.raises(UserError, match="embeds vectors of 12 numbers"):
        model.embed(vectors[:, :5])
    with pytest.raises(UserError, match="NaN"):
        model.embed(vectors * np.nan)


def test_every_form_of_an_image_gives_the_same_vector(photo_run, photos):
    model = ccp.load(photo_run[0])
    path = photos / "class_03" / "1.png"
    picture = Image.open(path)
    forms = [path, str(path), picture, np.asarray(picture), [path], np.asarray(picture)[None]]
    forms += [np.array([str(path)]), np.array([path])]  # a column of a table
    vectors = [model.embed(form) for form in forms]
    assert all(vector.shape == (1, model.dim) for vector in vectors)
    for vector in vectors[1:]:
        np.testing.assert_array_equal(vector, vectors[0])


def test_a_folder_stands_for_its_images_in_order(photo_run, photos):
    model = ccp.load(photo_run[0])
    paths = sorted(photos.rglob("*.png"))
    np.testing.assert_array_equal(model.embed(photos), model.embed(paths))
    assert model.embed([photos / "class_00", paths[-1]]).shape == (6, model.dim)


def test_a_picture_is_turned_upright(photo_run, photos, tmp_path):
    model = ccp.load(photo_run[0])
    upright = Image.open(photos / "class_03" / "1.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    upright.rotate(90, expand=True).save(tmp_path / "turned.png", exif=exif)
    np.testing.assert_array_equal(model.embed(tmp_path / "turned.png"), model.embed(upright))
    np.testing.assert_array_equal(model.embed(Image.open(tmp_path / "turned.png")), model.embed(upright))


@pytest.fixture
def broken(tmp_path):
    """A text file, an empty one and one that is not there."""
    (tmp_path / "text.jpg").write_text("no image")
    (tmp_path / "empty.png").touch()
    return [tmp_path / "text.jpg", tmp_path / "empty.png", tmp_path / "missing.png"]


def test_a_broken_image_is_named(photo_run, broken):
    model = ccp.load(photo_run[0])
    for file, reason in zip(broken, ("not an image", "not an image", "there is no such file"), strict=True):
        with pytest.raises(UserError, match=rf"{file.name} \({reason}\): repair it, or give another one$"):
            model.embed([file])
        with pytest.raises(UserError, match=rf"{file.name} \({reason}\): repair or remove it, or .*--skip-broken"):
            model.embed([file, file])


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((4, 4, 3), dtype=np.float32),
        np.zeros((0, 4, 3), dtype=np.uint8),
        np.zeros((4, 4, 2), dtype=np.uint8),
        7,
    ],
    ids=["float", "empty", "two channels", "number"],
)
def test_what_is_no_image_is_refused(photo_run, wrong):
    with pytest.raises(UserError, match="cannot embed"):
        ccp.load(photo_run[0]).embed([wrong])


def test_broken_images_can_be_skipped(photo_run, photos, broken):
    model = ccp.load(photo_run[0])
    good = sorted(photos.rglob("*.png"))[:5]
    vectors = model.embed([good[0], broken[0], *good[1:3], *broken[1:], *good[3:]], on_error="skip")
    np.testing.assert_allclose(vectors, model.embed(good), atol=1e-6)
    assert [item for item, _ in model.skipped] == broken
    assert model.skipped[0][1] == "not an image"
    model.embed(good[0], on_error="skip")
    assert model.skipped == []
    assert model.embed(broken, on_error="skip").shape == (0, model.dim)


def test_a_stream_goes_on_at_any_batch_bit_for_bit(photo_run, photos, broken):
    model = ccp.load(photo_run[0])
    paths = sorted(photos.rglob("*.png"))
    paths[5] = broken[0]
    parts = list(model.embed_stream(paths, batch_size=8, on_error="skip"))
    assert [position for positions, _ in parts for position in positions] == [n for n in range(80) if n != 5]
    again = list(model.embed_stream(paths[16:], batch_size=8, on_error="skip"))
    for (_, vectors), (_, repeated) in zip(parts[2:], again, strict=True):
        np.testing.assert_array_equal(vectors, repeated)


def test_an_abandoned_stream_ends_its_threads(photo_run, photos):
    model = ccp.load(photo_run[0])
    stream = model.embed_stream(sorted(photos.rglob("*.png")), batch_size=2)
    next(stream)
    stream.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ccp-decode")]


def test_many_threads_may_share_a_model(photo_run, photos, broken):
    model = ccp.load(photo_run[0])
    paths = sorted(photos.rglob("*.png"))[:24]
    expected = [model.embed(path) for path in paths]

    def vector_and_skipped(path):
        return model.embed([path, broken[0]], batch_size=1, on_error="skip"), len(model.skipped)

    with ThreadPoolExecutor(8) as threads:
        for (vector, skipped), alone in zip(threads.map(vector_and_skipped, paths), expected, strict=True):
            np.testing.assert_array_equal(vector, alone)
            assert skipped == 1


def test_embedding_leaves_torch_as_it_was(photo_run, photos):
    model = ccp.load(photo_run[0])
    before = torch.get_rng_state()
    model.embed(photos)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(("argument", "value"), [("batch_size", 0), ("on_error", "ignore")])
def test_wrong_arguments_are_named(photo_run, photos, argument, value):
    with pytest.raises(UserError, match=argument):
        ccp.load(photo_run[0]).embed(photos, **{argument: value})


def test_an_empty_folder_is_named(photo_run, tmp_path):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UserError, match="holds no images"):
        ccp.load(photo_run[0]).embed(tmp_path / "nothing")


def test_similarity_and_distance_are_of_the_two_vectors(photo_run, photos):
    model = ccp.load(photo_run[0])
    a, b = photos / "class_00" / "0.png", photos / "class_15" / "0.png"
    (first,), (second,) = model.embed(a).astype(float), model.embed(b).astype(float)
    assert model.similarity(a, b) == pytest.approx(first @ second)
    assert model.distance(a, b) == pytest.approx(np.linalg.norm(first - second))
    assert model.distance(a, a) == 0.0
    with pytest.raises(UserError, match="two images"):
        model.distance(a, photos)


def test_distances_are_normalised_as_the_certificate_normalised_them(make_photo_run, photos):
    folder, _ = make_photo_run("loss.normalise=l2")
    model = ccp.load(folder)
    vectors = model.comparable(model.embed(photos) / 3)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_the_verdict_follows_the_certificate(photo_run, photos):
    model = ccp.load(photo_run[0])
    a, b = photos / "class_00" / "0.png", photos / "class_15" / "0.png"
    verdict = model.same(a, b)
    assert verdict.threshold == model.certificate["threshold"]["beta"] == model.threshold(0.01)
    assert verdict.same == (verdict.distance <= verdict.threshold)
    assert "1 % of pairs of different classes" in verdict.promise
    assert model.same(a, a).same


def test_save_refuses_a_folder_that_holds_something(photo_run, tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(UserError, match="not empty"):
        ccp.load(photo_run[0]).save(tmp_path / "taken")
    assert [file.name for file in (tmp_path / "taken").iterdir()] == ["file"]
