"""Two short runs for the commands that come after training."""

import pytest

from ccp_dml.cli import main


def options(features, *settings):
    quick = ("train.max_steps=8", "train.evaluate_every=4", "train.classes_per_batch=4", "model.embedding_dim=6")
    return [part for setting in (f"data.path={features}", *quick, *settings) for part in ("--set", setting)]


@pytest.fixture
def trained_runs(features, tmp_path):
    runs = [tmp_path / "fold0", tmp_path / "fold1"]
    for fold, run in enumerate(runs):
        assert main(["train", "features", "c2", *options(features, f"protocol.fold={fold}"), "--out", str(run)]) == 0
    return runs
