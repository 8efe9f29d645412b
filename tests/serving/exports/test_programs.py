"""Programs for other runtimes: the run's vectors without torch, and what they refuse."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import ccp_dml as ccp
from ccp_dml.errors import UserError
from ccp_dml.serving.exports.export import export_run
from ccp_dml.serving.exports.programs import FromInputs, example_inputs, graph_of_preprocessing, run_onnx, write_onnx

ONNXRUNTIME_ALONE = """
import sys
from pathlib import Path
import numpy as np, onnxruntime
from PIL import Image
folder, photos, out = sys.argv[1:]
session = onnxruntime.InferenceSession(f"{folder}/model_uint8.onnx")
images = [np.asarray(Image.open(path).convert("RGB")) for path in sorted(Path(photos).rglob("*.png"))]
batches = [images[start:start + 7] for start in range(0, len(images), 7)]
np.save(out, np.concatenate([session.run(None, {"images": np.stack(batch)})[0] for batch in batches]))
assert "torch" not in sys.modules and "ccp_dml" not in sys.modules
"""


def test_onnxruntime_alone_gives_the_same_vectors_and_neighbours(exported, photo_run, photos, tmp_path):
    arguments = [str(exported.folder), str(photos), str(tmp_path / "vectors.npy")]
    subprocess.run([sys.executable, "-c", ONNXRUNTIME_ALONE, *arguments], check=True)
    found, expected = np.load(tmp_path / "vectors.npy"), ccp.load(photo_run[0]).embed(photos)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)

    def neighbours(vectors):
        distances = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)
        return distances.argsort(axis=1, kind="stable")[:, :6]

    assert (neighbours(found) == neighbours(expected)).mean() > 0.99  # near ties may change places


def test_images_of_another_size_go_through_the_same_preprocessing(exported, photo_run):
    import onnxruntime

    session = onnxruntime.InferenceSession(exported.folder / "model_uint8.onnx")
    assert session.get_inputs()[0].shape == ["batch", "height", "width", 3]
    images = np.random.default_rng(0).integers(0, 256, size=(3, 75, 51, 3), dtype=np.uint8)
    found = session.run(None, {"images": images})[0]
    np.testing.assert_allclose(found, ccp.load(photo_run[0]).embed(images), rtol=0, atol=1e-5)


def test_mixed_precision_is_refused_by_programs_alone(make_frozen_run, tmp_path):
    folder, _ = make_frozen_run("run.precision=bf16-mixed")
    with pytest.raises(UserError, match="bf16-mixed"):
        export_run(folder, tmp_path / "out", torch_program=True)
    assert export_run(folder, tmp_path / "out").differences["model.safetensors"] == 0


def test_without_the_extra_onnx_is_explained(photo_run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UserError, match=r"ccp-dml\[onnx\]"):
        export_run(photo_run[0], tmp_path / "out", onnx=True)
    assert list(tmp_path.iterdir()) == []


def test_a_frozen_backbone_gives_its_rounded_features_too(make_frozen_run, photos, tmp_path):
    model = ccp.load(make_frozen_run("model.feature_precision=half")[0], "cpu")
    write_onnx(model, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"model.onnx", "model_uint8.onnx"}
    paths = sorted(photos.rglob("*.png"))[:5]
    inputs = np.stack([model.preprocessing.load(path).float().numpy() for path in paths])
    features = run_onnx(tmp_path / "model.onnx", "features")(inputs)
    np.testing.assert_array_equal(features, features.astype(np.float16))
    with torch.no_grad():
        embeddings, expected = FromInputs(model.network, with_features=True)(torch.from_numpy(inputs))
    np.testing.assert_allclose(features, expected, rtol=2e-3, atol=1e-5)  # a step of half precision, now and then
    np.testing.assert_array_equal(embeddings, model.embed(paths))


def test_examples_fit_the_network(photo_run):
    model = ccp.load(photo_run[0])
    assert example_inputs(model).shape == (2, 3, 32, 32)
    images = torch.zeros(2, 50, 60, 3, dtype=torch.uint8)
    assert graph_of_preprocessing(model)(images).shape == (2, 3, 32, 32)
