"""A command that ends well says nothing on standard error that it did not mean to say."""

import os
import subprocess
import sys

import pytest

COLLECTING_IN_EVERY_FORK = (
    "import gc, os, sys; import ccp_dml.runs.training; from ccp_dml.cli import main; "
    "os.register_at_fork(after_in_child=gc.collect); gc.freeze(); sys.exit(main(sys.argv[1:]))"
)
"""A process that loads images finds what its parent has not yet collected, sooner or later: here at once."""


@pytest.mark.slow
def test_no_loader_process_finds_loaders_of_its_parent(image_folder, tmp_path):
    settings = [f"data.root={image_folder}", "data.resize=24", "data.crop=20", "run.workers=1", "model.embedding_dim=4"]
    settings += ["train.max_steps=2", "train.evaluate_every=1", "train.classes_per_batch=4", "run.map_points=0"]
    settings += ["ccp.start_step=1", "ccp.patience=1"]
    options = [part for setting in settings for part in ("--set", setting)]
    command = ["train", "folder", "scratch", "ms-ccp", *options, "--out", str(tmp_path / "run")]
    ended = subprocess.run(
        [sys.executable, "-c", COLLECTING_IN_EVERY_FORK, *command],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "Exception ignored" not in ended.stderr
    assert "Traceback" not in ended.stderr
