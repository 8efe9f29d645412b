"""`ccp export` as a user calls it: what it says, what it leaves, and what it refuses."""

import pytest

import ccp_dml as ccp
from ccp_dml.cli import main


def test_a_plain_export_is_checked_and_can_be_loaded(photo_run, tmp_path, capsys):
    out = tmp_path / "model"
    assert main(["export", str(photo_run[0]), "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert "model.safetensors: same vectors as the run in batches of 1, 2, 7" in shown.out
    assert f"Written: {out} (README.md," in shown.out
    assert "Checking what was written" in shown.err
    assert "rounded" not in shown.out
    assert ccp.load(out).digest == ccp.load(photo_run[0]).digest


def test_the_rounding_of_a_frozen_backbone_is_told(make_frozen_run, tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    run, _ = make_frozen_run("model.feature_precision=half")
    assert main(["export", str(run), "--out", str(tmp_path / "model"), "--onnx"]) == 0
    shown = capsys.readouterr().out
    for name in ("model.onnx", "model_uint8.onnx"):
        (line,) = [line for line in shown.splitlines() if line.startswith(name) and "rounded to the other side" in line]
        assert "of 7 vectors by more than 1e-05; made of the same features, vectors differ by" in line


def test_images_to_check_on_can_be_named(photo_run, photos, tmp_path, capsys):
    arguments = ["export", str(photo_run[0]), "--out", str(tmp_path / "model"), "--images"]
    (tmp_path / "empty").mkdir()
    assert main([*arguments, str(tmp_path / "empty")]) == 2
    assert "holds no images to check the export on" in " ".join(capsys.readouterr().err.split())
    assert main([*arguments, str(photos / "class_00")]) == 0


def test_mistakes_end_in_a_sentence_and_leave_nothing(photo_run, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for arguments, message in (
        ([str(photo_run[0]), "--out", str(tmp_path / "full")], "is not empty; export to a new or empty folder"),
        ([str(tmp_path / "nothing"), "--out", str(tmp_path / "x")], "nothing"),
    ):
        assert main(["export", *arguments]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]
