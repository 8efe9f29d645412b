"""An export gives the run's vectors in every form, and is there as a whole or not at all."""

import json
import re
import shutil

import numpy as np
import pytest
from support.frozen_runs import save_resnet
from support.small_runs import trained

import ccp_dml as ccp
from ccp_dml.errors import UserError
from ccp_dml.runs.scoring import evaluate_runs
from ccp_dml.runs.watcher import Watcher
from ccp_dml.serving.exports import export as exporting
from ccp_dml.serving.exports.export import TOLERANCE, export_run


def test_every_file_is_there_and_was_compared(exported):
    programs = {"model.safetensors", "model.onnx", "model_uint8.onnx", "model.pt2"}
    others = {"model.json", "preprocessing.json", "certificate.json", "README.md", "map.png"}
    assert set(exported.files) == programs | others == {file.name for file in exported.folder.iterdir()}
    assert exported.differences.keys() == programs
    assert exported.allowed == TOLERANCE == 1e-5
    assert all(difference <= TOLERANCE for difference in exported.differences.values())
    assert exported.rounded == {}  # nothing is, where the backbone was trained
    assert [file.name for file in exported.folder.parent.iterdir()] == ["photos"]


def test_preprocessing_and_class_names_are_json(exported, photo_run):
    values = json.loads((exported.folder / "preprocessing.json").read_text())
    assert values == {
        "kind": "photo",
        "resize": 36,
        "crop": 32,
        "class_names": list(ccp.load(photo_run[0]).class_names),
    }


def test_an_export_is_loaded_as_the_run_is(exported, photo_run, photos):
    model, run = ccp.load(exported.folder), ccp.load(photo_run[0])
    assert model.digest == run.digest
    np.testing.assert_array_equal(model.embed(photos), run.embed(photos))


@pytest.fixture(scope="module")
def half_run(make_frozen_run):
    """A run whose frozen backbone's features are kept in half precision."""
    return make_frozen_run("model.feature_precision=half")


def test_a_frozen_run_gives_the_same_vectors_in_another_runtime(frozen_run, photos, tmp_path):
    import onnxruntime

    done = export_run(frozen_run[0], tmp_path / "out", onnx=True)
    assert done.allowed == TOLERANCE == 1e-5
    assert done.rounded == {}
    assert done.differences["model.safetensors"] == 0
    session = onnxruntime.InferenceSession(done.folder / "model.onnx")
    assert [output.name for output in session.get_outputs()] == ["embeddings"]
    assert "half precision" not in (done.folder / "README.md").read_text()
    model = ccp.load(done.folder, "cpu")
    files = sorted(photos.rglob("*.png"))
    inputs = np.stack([model.preprocessing.load(file).float().numpy() for file in files])
    np.testing.assert_allclose(session.run(None, {"inputs": inputs})[0], model.embed(files), rtol=0, atol=1e-5)


def test_a_frozen_run_in_half_precision_is_exported_whole(half_run, photos, tmp_path):
    """Its features are rounded, in other runtimes now and then to the other side, which is allowed for as measured."""
    done = export_run(half_run[0], tmp_path / "out", onnx=True)
    assert TOLERANCE < done.allowed < 1e-3
    assert all(difference <= done.allowed for difference in done.differences.values())
    assert done.differences["model.safetensors"] == 0
    assert done.rounded.keys() == {"model.onnx", "model_uint8.onnx"}
    for rounded in done.rounded.values():
        assert rounded.head < 1e-6  # of the same features come the same vectors
        assert rounded.otherwise < 0.05 * rounded.features
        assert 0 <= rounded.beyond <= rounded.images == 7
    np.testing.assert_array_equal(ccp.load(tmp_path / "out").embed(photos), ccp.load(half_run[0]).embed(photos))
    assert "half precision" in (tmp_path / "out" / "README.md").read_text()
    assert "`small_cnn`, frozen" in (tmp_path / "out" / "README.md").read_text()


def test_a_run_of_top_stages_is_loaded_scored_and_exported_whole(make_photo_run, photos, tmp_path):
    weights = tmp_path / "resnet.safetensors"
    save_resnet(weights, seed=5)
    folder, _ = make_photo_run(
        *("model.backbone=test_resnet", f"model.weights={weights}", "model.train_from=layer3"),
        *(f"run.cache={tmp_path / 'cache'}", "data.views=1", "train.max_steps=2", "model.feature_precision=half"),
    )
    vectors = ccp.load(folder).embed(photos)
    done = export_run(folder, tmp_path / "out", onnx=True)
    assert TOLERANCE < done.allowed < 1e-2
    assert done.differences["model.safetensors"] == 0
    assert "model.onnx" in done.differences
    np.testing.assert_array_equal(ccp.load(tmp_path / "out").embed(photos), vectors)
    assert "frozen below `layer3`" in (tmp_path / "out" / "README.md").read_text()
    again = evaluate_runs([folder], Watcher())
    assert again["map_at_r"] == json.loads((folder / "result.json").read_text())["test"]["map_at_r"]
    save_resnet(weights, seed=6)
    with pytest.raises(UserError, match="backbone's weights"):
        ccp.load(folder)


def test_a_run_on_vectors_is_exported_too(features, tmp_path, monkeypatch):
    folder, _ = trained(tmp_path / "run", ["features", "c2"], [f"data.path={features}"])
    done = export_run(folder, tmp_path / "out", torch_program=True)
    assert done.differences.keys() == {"model.safetensors", "model.pt2"}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "vectors of 12 numbers" in card
    monkeypatch.chdir(tmp_path / "out")
    np.save("features.npy", np.ones((3, 12)))
    names = {}
    (program,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    exec(program, names)
    np.testing.assert_array_equal(names["vectors"], ccp.load(".").embed(np.ones((3, 12))))
    with pytest.raises(UserError, match="was trained on vectors, not on images, and is checked on those: leave out"):
        export_run(folder, tmp_path / "other", images=tmp_path)


def test_a_mismatch_leaves_nothing(photo_run, tmp_path, monkeypatch):
    real = exporting.run_torch
    monkeypatch.setattr(exporting, "run_torch", lambda file: lambda inputs: real(file)(inputs) + 1e-4)
    with pytest.raises(UserError, match=r"model\.pt2 does not give the vectors .* they differ by up to 0\.0001"):
        export_run(photo_run[0], tmp_path / "out", torch_program=True)
    assert list(tmp_path.iterdir()) == []


def test_vectors_that_are_not_numbers_are_a_mismatch(photo_run, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "run_torch", lambda _: lambda inputs: np.full((len(inputs), 6), np.nan))
    with pytest.raises(UserError, match="does not give"):
        export_run(photo_run[0], tmp_path / "out", torch_program=True)


def test_a_failure_while_writing_leaves_nothing(photo_run, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("no space")

    monkeypatch.setattr(exporting, "write_card", fail)
    with pytest.raises(OSError, match="no space"):
        export_run(photo_run[0], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_without_its_data_a_run_is_checked_on_given_images(make_photo_run, photos, tmp_path):
    shutil.copytree(photos, tmp_path / "photos")
    folder, _ = make_photo_run(f"data.root={tmp_path / 'photos'}")
    (tmp_path / "photos").rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="--images DIR"):
        export_run(folder, tmp_path / "out")
    assert export_run(folder, tmp_path / "out", images=photos / "class_01").differences["model.safetensors"] == 0


def test_a_run_without_test_classes_is_checked_on_those_that_train(make_photo_run, tmp_path):
    folder, _ = make_photo_run("data.test_share=0")
    assert export_run(folder, tmp_path / "out").differences["model.safetensors"] == 0


def test_images_to_check_on_that_cannot_be_read_are_named(photo_run, tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.png").write_bytes(b"bad")
    with pytest.raises(UserError, match=r"a\.png \(not an image\): repair or remove it"):
        export_run(photo_run[0], tmp_path / "out", images=tmp_path / "bad")
    for no_folder in (tmp_path / "nothing", tmp_path / "bad" / "a.png"):
        with pytest.raises(UserError, match=f"There is no folder {no_folder}; give --images"):
            export_run(photo_run[0], tmp_path / "out", images=no_folder)


def test_a_head_that_does_something_else_is_refused(half_run, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "OUTPUT", "features")  # as if the program's vectors were wrong
    monkeypatch.setattr(exporting, "checked_differences", lambda *_: {})
    monkeypatch.setattr(exporting, "NORMALISERS", {"clip": lambda vectors: vectors[:, :1] * 0 + 3.0})
    with pytest.raises(
        UserError, match=r"model.onnx makes other vectors of its features than .*; nothing was exported"
    ):
        export_run(half_run[0], tmp_path / "out", onnx=True)
    assert not (tmp_path / "out").exists()
