"""What is found out before a plan's first step."""

import pytest

from ccp_dml.errors import UserError
from ccp_dml.plans.plan import plan_run
from ccp_dml.plans.rehearsal import check, rehearse

SMALL = ("data.resize=36", "data.crop=32", "train.classes_per_batch=4", "train.images_per_class=2")


def test_random_weights_are_mentioned_once(image_folder, tmp_path):
    given = [*SMALL, f"data.root={image_folder}", "model.backbone=resnet18"]
    runs = [
        plan_run(str(fold), tmp_path, ["folder", "scratch", "c2"], [*given, f"protocol.fold={fold}"]) for fold in (0, 1)
    ]
    (note,) = rehearse(runs)
    assert "resnet18 starts from random weights" in note
    assert "model.weights=FILE" in note


def test_networks_that_are_made_to_start_so_are_not(image_folder, tmp_path):
    given = [*SMALL, f"data.root={image_folder}", "model.backbone=small_cnn"]
    assert rehearse([plan_run("run", tmp_path, ["folder", "scratch", "c2"], given)]) == []


def test_a_plan_is_checked_without_downloads_or_passes(image_folder, tmp_path, monkeypatch):
    given = [*SMALL, f"data.root={image_folder}", "model.backbone=resnet18", "model.pretrained=true"]
    monkeypatch.setattr("ccp_dml.plans.rehearsal.build_network", lambda *_: pytest.fail("a network was built"))
    assert check([plan_run("run", tmp_path, ["folder", "scratch", "c2"], given)]) == []


def test_missing_data_and_weights_are_found_by_the_check(image_folder, tmp_path):
    with pytest.raises(UserError, match="there is no folder"):
        check([plan_run("run", tmp_path, ["folder", "scratch", "c2"], ["data.root=nowhere"])])
    given = [*SMALL, f"data.root={image_folder}", "model.backbone=small_cnn", "model.weights=gone.safetensors"]
    with pytest.raises(UserError, match=r"there is no weights file .*gone\.safetensors"):
        check([plan_run("run", tmp_path, ["folder", "scratch", "c2"], given)])


@pytest.mark.parametrize(
    ("method", "key", "words"),
    [("c2-ccp", "ccp.start_step", "the first proxies"), ("c2-xbm", "xbm.start_step", "the memory of past batches")],
)
def test_runs_that_are_over_before_their_method_begins_are_told_together(features, tmp_path, method, key, words):
    given = [*SMALL[2:], f"data.path={features}", f"{key}=4", "train.evaluate_every=2"]

    def notes(steps, *methods):
        settings = [*given, f"train.max_steps={steps}"]
        runs = [
            plan_run(f"{name}/{fold}", tmp_path, ["features", name], [*settings, f"protocol.fold={fold}"])
            for name in methods
            for fold in (0, 1)
        ]
        found = rehearse(runs)
        assert check(runs) == found
        return found

    (note,) = notes(4, "c2", method)
    assert note.startswith(f"{method}/0 and 1 more: train.max_steps=4 ends the training before {words}, which come")
    assert notes(5, "c2", method) == []
