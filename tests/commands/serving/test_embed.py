"""`ccp embed` as a user calls it."""

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import ccp_dml as ccp
from ccp_dml.cli import main

CCP = "from ccp_dml.cli import run; run()"


def test_a_folder_becomes_a_file(photo_run, photos, tmp_path, capsys):
    out = tmp_path / "v.npz"
    assert main(["embed", str(photo_run[0]), str(photos), "--out", str(out)]) == 0
    assert "80 vectors of 6 numbers" in capsys.readouterr().out
    with np.load(out) as file:
        np.testing.assert_array_equal(file["features"], ccp.load(photo_run[0]).embed(photos))


def test_a_table_gives_labels_and_split(photo_run, photos, tmp_path):
    rows = [f"{path},{path.parent.name},{'train' if n % 2 else 'test'}" for n, path in enumerate(photos.rglob("*.png"))]
    (tmp_path / "table.csv").write_text("\n".join(["path,label,split", *rows]))
    out = tmp_path / "v.npz"
    assert main(["embed", str(photo_run[0]), str(tmp_path / "table.csv"), "--out", str(out)]) == 0
    with np.load(out) as file:
        assert set(file["split"]) == {"train", "test"}
        assert file["labels"][0] == file["paths"][0].split("/")[-2]


def test_a_head_can_be_trained_on_the_result(photo_run, photos, tmp_path):
    out = tmp_path / "v.npz"
    assert main(["embed", str(photo_run[0]), str(photos), "--out", str(out)]) == 0
    settings = [f"data.path={out}", "train.max_steps=2", "train.evaluate_every=1", "train.classes_per_batch=4"]
    options = [part for setting in settings for part in ("--set", setting)]
    assert main(["train", "features", "c2", *options, "--out", str(tmp_path / "head")]) == 0


def test_what_was_skipped_is_named(photo_run, photos, tmp_path, capsys):
    (tmp_path / "text.jpg").write_text("no image")
    arguments = ["embed", str(photo_run[0]), str(photos / "class_00"), str(tmp_path / "text.jpg")]
    arguments += ["--out", str(tmp_path / "v.npz")]
    assert main(arguments) == 2
    assert "text.jpg (not an image)" in capsys.readouterr().err
    assert main([*arguments, "--skip-broken"]) == 0
    shown = capsys.readouterr().out
    assert "Left out 1 image:" in shown
    assert "5 vectors" in shown


def test_pictures_of_formats_that_are_not_read_are_told(photo_run, photos, tmp_path, capsys):
    shutil.copytree(photos / "class_00", tmp_path / "photos")
    (tmp_path / "photos" / "IMG_1.HEIC").write_bytes(b"x")
    for arguments in (["embed", "--out", "v.npz"], ["index", "--out", "v.index"]):
        name, option, out = arguments
        assert main([name, str(photo_run[0]), str(tmp_path / "photos"), option, str(tmp_path / out)]) == 0
        assert "Left out 1 files of formats that are not read (.heic 1): convert" in capsys.readouterr().err


def test_a_model_of_vectors_says_so(features, tmp_path, photos, capsys):
    settings = [f"data.path={features}", "train.max_steps=2", "train.evaluate_every=1", "train.classes_per_batch=4"]
    options = [part for setting in settings for part in ("--set", setting)]
    assert main(["train", "features", "c2", *options, "--out", str(tmp_path / "head")]) == 0
    for command, out in (("embed", "v.npz"), ("index", "v.index")):
        assert main([command, str(tmp_path / "head"), str(photos), "--out", str(tmp_path / out)]) == 2
        assert "trained on vectors" in capsys.readouterr().err
    assert main(["serve", str(tmp_path / "head"), "--port", "0"]) == 2
    assert "trained on vectors, not on images; use it in Python" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_command_goes_on_to_the_same_bytes(photo_run, photos, tmp_path, how):
    images = [str(path) for path in sorted(photos.rglob("*.png"))]
    table = tmp_path / "many.csv"
    links = tmp_path / "links"
    links.mkdir()
    for turn in range(3):
        for number, path in enumerate(images):
            os.link(path, links / f"{turn}-{number}.png")
    table.write_text("path\n" + "\n".join(str(path) for path in sorted(links.iterdir())))
    command = [sys.executable, "-c", CCP, "embed", str(photo_run[0]), str(table), "--batch-size", "1", "--out"]
    process = subprocess.Popen([*command, str(tmp_path / "v.npz")], stderr=subprocess.PIPE, text=True)
    journal = tmp_path / ".v.npz.part" / "batches.jsonl"
    deadline = time.monotonic() + 200  # importing torch takes a minute where others use the machine
    while time.monotonic() < deadline and not (journal.exists() and journal.read_text().count("\n") > 5):
        time.sleep(0.01)
    process.send_signal(how)
    _, errors = process.communicate()
    assert process.returncode == (-9 if how == signal.SIGKILL else 130)
    if how == signal.SIGTERM:
        assert "the same command goes on" in errors
    assert not (tmp_path / "v.npz").exists()
    again = subprocess.run([*command, str(tmp_path / "v.npz")], capture_output=True, text=True, check=True)
    assert "Went on after" in again.stdout
    assert (
        main(["embed", str(photo_run[0]), str(table), "--batch-size", "1", "--out", str(tmp_path / "whole.npz")]) == 0
    )
    assert (tmp_path / "v.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
