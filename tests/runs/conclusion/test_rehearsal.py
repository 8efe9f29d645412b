import shutil
import time
from dataclasses import replace

import pytest
import torch
from conftest import write_features

from ccp_dml.config.layers import resolve
from ccp_dml.data.labelled import Parts, TestSet
from ccp_dml.errors import UserError
from ccp_dml.records.logbook import Logbook
from ccp_dml.runs.conclusion import finish
from ccp_dml.runs.conclusion.rehearsal import few_of, few_of_test, is_short, rehearse_end
from ccp_dml.runs.datasets import build_data, classes_to_learn_and_to_select_on
from ccp_dml.runs.loss_arguments import complete
from ccp_dml.runs.training import train
from ccp_dml.runs.watcher import Watcher


def parts_of(config):
    halves = build_data(config.data)
    return Parts(*classes_to_learn_and_to_select_on(config.protocol, halves), halves.test)


def config_of(features, method, *settings):
    return complete(
        resolve(
            ["features", method],
            [f"data.path={features}", "model.embedding_dim=5", "train.classes_per_batch=4", *settings],
        ).config
    )


@pytest.mark.parametrize("method", ["c2", "ms-ccp", "triplet", "proxy-nca++"])
def test_the_end_of_a_good_run_is_rehearsed_without_a_trace(features, method, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = set(tmp_path.iterdir())
    state = torch.get_rng_state()
    config = config_of(features, method)
    rehearse_end(config, parts_of(config))
    assert set(tmp_path.iterdir()) == before
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("part", ["score_embeddings", "write_report_data", "write_certificate", "write_report_of"])
def test_what_would_fail_at_the_end_fails_before_training(features, tmp_path, part, monkeypatch):
    def fails(*_):
        raise UserError("as it would after hours")

    monkeypatch.setattr(finish, part, fails)
    config = config_of(features, "c2", "train.max_steps=60")
    with pytest.raises(UserError, match="after hours"):
        train(config, Logbook.open_new(tmp_path / "run", config, ["test"]), Watcher())
    assert not (tmp_path / "run").exists()


def test_a_broken_test_image_is_found_before_a_frozen_backbone_trains(photos, tmp_path, backbone_weights):
    shutil.copytree(photos, tmp_path / "photos")
    for image in (tmp_path / "photos" / "class_08").iterdir():
        image.write_bytes(b"no image")
    given = [f"data.root={tmp_path / 'photos'}", "data.resize=36", "data.crop=32", "model.backbone=small_cnn"]
    given += ["model.freeze_backbone=true", f"model.weights={backbone_weights}", f"run.cache={tmp_path / 'cache'}"]
    given += ["train.classes_per_batch=4"]
    config = complete(resolve(["folder", "c2"], given).config)
    with pytest.raises(UserError, match="class_08"):
        train(config, Logbook.open_new(tmp_path / "run", config, ["test"]), Watcher())


def test_a_few_items_of_a_few_classes(tmp_path):
    config = config_of(write_features(tmp_path / "f.npz", classes=10, per_class=5), "c2")
    data = build_data(config.data).train
    few = few_of(data, [1, 4])
    assert few.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert few.class_names == (data.class_names[1], data.class_names[4])
    kept = few_of_test(TestSet(data, replace(data, positions=data.positions[5:], labels=data.labels[5:])))
    assert kept.queries.class_names == kept.gallery.class_names == data.class_names[1:4]  # the gallery has no class 0


def test_short_runs_are_not_rehearsed(features):
    assert is_short(config_of(features, "c2", "train.max_steps=10"))
    assert not is_short(config_of(features, "c2", "train.max_steps=100"))
    assert not is_short(config_of(features, "c2"))


def test_a_rehearsal_takes_no_time_to_speak_of(features):
    config = config_of(features, "c2")
    parts = parts_of(config)
    began = time.monotonic()
    rehearse_end(config, parts)
    assert time.monotonic() - began < 5
