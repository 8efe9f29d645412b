"""Runs and exported folders as models, and what is said about those that cannot be one."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import ccp_dml as ccp
from ccp_dml.errors import UserError
from ccp_dml.models.backbones import create_backbone
from ccp_dml.serving.model import architecture


@pytest.fixture
def saved(photo_run, tmp_path):
    """A saved model that may be damaged."""
    ccp.load(photo_run[0]).save(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.parametrize("kind", ["photo_run", "frozen_run"])
def test_a_saved_model_is_the_run_bit_for_bit(kind, request, photos, tmp_path):
    run = ccp.load(request.getfixturevalue(kind)[0])
    run.save(tmp_path / "saved")
    saved = ccp.load(tmp_path / "saved")
    np.testing.assert_array_equal(saved.embed(photos), run.embed(photos))
    assert saved.digest == run.digest
    assert saved.description.certificate == run.certificate is not None
    assert saved.class_names == run.class_names == tuple(f"class_{n:02}" for n in range(2, 8))
    assert saved.name == run.name == "photos"


def test_a_saved_frozen_model_needs_no_backbone_file(make_frozen_run, backbone_weights, photos, tmp_path):
    weights = shutil.copy(backbone_weights, tmp_path / "weights.safetensors")
    folder, _ = make_frozen_run(f"model.weights={weights}")
    run = ccp.load(folder)
    run.save(tmp_path / "saved")
    weights.unlink()
    np.testing.assert_array_equal(ccp.load(tmp_path / "saved").embed(photos), run.embed(photos))
    with pytest.raises(UserError, match=r"there is no weights file .*weights\.safetensors: set model\.weights=FILE"):
        ccp.load(folder)
    moved = ccp.load(folder, settings=[f"model.weights={backbone_weights}"])
    assert moved.digest == run.digest


def test_a_head_refuses_another_backbone(make_frozen_run, tmp_path):
    weights = tmp_path / "weights.safetensors"
    save_file(create_backbone("small_cnn", seed=5).state_dict(), weights)
    folder, _ = make_frozen_run(f"model.weights={weights}")
    save_file(create_backbone("small_cnn", seed=6).state_dict(), weights)
    with pytest.raises(UserError, match="backbone's weights are not those"):
        ccp.load(folder)


def test_digests_tell_models_apart(photo_run, frozen_run, make_photo_run):
    digests = [ccp.load(folder).digest for folder, _ in (photo_run, frozen_run, make_photo_run("data.resize=38"))]
    assert len(set(digests)) == 3
    network = ccp.load(frozen_run[0]).description.network
    named = {
        precision: architecture(network.model_copy(update={"feature_precision": precision}), None)
        for precision in ("half", "single")
    }
    assert named["single"] == {**named["half"], "feature_precision": "single"}  # models of earlier versions keep theirs
    assert ccp.load(photo_run[0]).digest == digests[0]


def test_the_digest_is_the_same_in_another_process(photo_run):
    program = f"import ccp_dml; print(ccp_dml.load({str(photo_run[0])!r}).digest)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ccp.load(photo_run[0]).digest


def test_a_device_may_be_one_of_torch(photo_run):
    assert ccp.load(photo_run[0], torch.device("cpu")).device == torch.device("cpu")


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(UserError, match="there is no model"):
        ccp.load(tmp_path / "nowhere")
    with pytest.raises(UserError, match="holds no model"):
        ccp.load(tmp_path)


def test_settings_of_a_saved_model_are_refused(saved):
    with pytest.raises(UserError, match=r"exported model, .* leave out model\.weights=other\.safetensors"):
        ccp.load(saved, settings=["model.weights=other.safetensors"])


def test_settings_are_a_list(photo_run):
    with pytest.raises(UserError, match=r"settings are a list: write \['model.weights=FILE'\]"):
        ccp.load(photo_run[0], settings="model.weights=FILE")


def test_an_unfinished_run_is_refused(photo_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(photo_run[0], folder)
    (folder / "best.safetensors").unlink()
    with pytest.raises(UserError, match="finish it"):
        ccp.load(folder)


def test_weights_of_another_network_are_refused(photo_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(photo_run[0], folder)
    weights = load_file(folder / "best.safetensors")
    save_file({name: value for name, value in weights.items() if "join" not in name}, folder / "best.safetensors")
    with pytest.raises(UserError, match="does not fit the network"):
        ccp.load(folder)
    save_file({"other": weights["linear.weight"]}, folder / "best.safetensors")
    with pytest.raises(UserError, match="holds no network"):
        ccp.load(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "preprocessing.json"])
def test_a_missing_file_is_named(saved, name):
    (saved / name).unlink()
    with pytest.raises(UserError, match=name):
        ccp.load(saved)


@pytest.mark.parametrize("name", ["model.safetensors", "model.json", "preprocessing.json", "certificate.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[1]"])
def test_a_damaged_file_is_named(saved, name, content):
    (saved / name).write_bytes(content)
    with pytest.raises(UserError, match=name):
        ccp.load(saved)


def change(file, **values):
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("preprocessing.json", {"crop": 30}),
        ("preprocessing.json", {"kind": "grey"}),
        ("preprocessing.json", {"kind": "sound"}),
        ("preprocessing.json", {"crop": None}),
        ("model.json", {"batch_size": "many"}),
        ("model.json", {"precision": "32-vrue"}),
        ("model.json", {"network": {"backbone": 3, "colour": "red"}}),
    ],
)
def test_changed_values_are_refused(saved, name, values):
    change(saved / name, **values)
    with pytest.raises(UserError, match="damaged or was changed"):
        ccp.load(saved)


def test_changed_weights_are_refused(saved):
    weights = load_file(saved / "model.safetensors")
    weights["linear.weight"][0, 0] += 1e-3
    save_file(weights, saved / "model.safetensors")
    with pytest.raises(UserError, match="digest"):
        ccp.load(saved)


def test_another_format_is_refused(saved):
    change(saved / "model.json", format=2)
    with pytest.raises(UserError, match="format 2"):
        ccp.load(saved)


def test_a_run_without_class_names_still_embeds(photo_run, photos, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(photo_run[0], folder)
    (folder / "classes.json").unlink()
    model = ccp.load(folder)
    assert len(model.embed(photos / "class_00")) == 5
    with pytest.raises(UserError, match="did not record class names"):
        _ = model.class_names
    model.save(tmp_path / "saved")
    assert ccp.load(tmp_path / "saved").description.class_names is None


def test_the_package_has_no_other_lazy_names():
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = ccp.lode
