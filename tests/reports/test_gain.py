from dataclasses import replace

import pytest
from support.made_up_runs import write_run

from ccp_dml.records.run_folder import RunFolder
from ccp_dml.reports.gain import did_harm, gain_over_raw, help_text, progress_text, raw_name


def run_with(tmp_path, raw, test):
    run = RunFolder.read(write_run(tmp_path / "run"))
    scores = {"raw": {"network": "raw resnet50", "precision_at_1": raw}, "test": {"precision_at_1": test}}
    return replace(run, result=run.result | scores)


@pytest.mark.parametrize(
    ("raw", "test", "words"),
    [
        (0.712, 0.667, "Training did harm: P@1 71.2 -> 66.7 on unseen classes, 4.5 points less than raw resnet50."),
        (0.712, 0.812, "Training helped: P@1 71.2 -> 81.2 on unseen classes, 10.0 points more than raw resnet50."),
        (0.712, 0.7121, "Training changed nothing: P@1 71.2 -> 71.2 on unseen classes, as raw resnet50."),
    ],
)
def test_the_page_answers_whether_it_helped(tmp_path, raw, test, words):
    run = run_with(tmp_path, raw, test)
    assert words in help_text(run)
    assert gain_over_raw(run)[0] == pytest.approx(test - raw)
    assert raw_name(run) == "raw resnet50"
    assert did_harm(run) == ("harm" in words)


def test_a_loss_in_one_score_and_a_gain_in_the_other_are_both_said(tmp_path):
    run = run_with(tmp_path, 0.829, 0.810)
    run = replace(run, result=run.result | {"raw": run.result["raw"] | {"map_at_r": 0.360}})
    run = replace(run, result=run.result | {"test": run.result["test"] | {"map_at_r": 0.378}})
    assert help_text(run).startswith(
        "Training helped and harmed: on unseen classes the nearest image is right less often (P@1 82.9 -> 81.0, 1.9 "
        "points less than raw resnet50), but all images of a class are nearer (MAP@R 36.0 -> 37.8). To gain in both: "
    )
    swapped = replace(run, result=run.result | {"raw": run.result["test"] | {"network": "raw resnet50"}})
    swapped = replace(swapped, result=swapped.result | {"test": run.result["raw"]})
    assert help_text(swapped).startswith(
        "Training helped and harmed: on unseen classes the nearest image is right more often (P@1 81.0 -> 82.9, 1.9 "
        "points more than raw resnet50), but all images of a class are farther (MAP@R 37.8 -> 36.0). To gain in both: "
    )


@pytest.mark.parametrize(
    ("map_at_r", "words"),
    [
        (0.773, "Training did harm: on unseen classes the nearest image is right as often as with raw resnet50"),
        (0.8054, "Training changed nothing: P@1 100.0 -> 100.0"),
        (0.831, "Training helped: on unseen classes the nearest image is right as often as with raw resnet50"),
    ],
)
def test_where_the_nearest_image_cannot_tell_all_images_do(tmp_path, map_at_r, words):
    run = run_with(tmp_path, 1.0, 1.0)
    run = replace(run, result=run.result | {"raw": run.result["raw"] | {"map_at_r": 0.805}})
    run = replace(run, result=run.result | {"test": run.result["test"] | {"map_at_r": map_at_r}})
    text = help_text(run)
    assert did_harm(run) == ("harm" in words)
    assert words in text
    assert ("nothing" in words) or f"(MAP@R 80.5 -> {100 * map_at_r:.1f})" in text
    assert ("train it in another way" in text) == ("harm" in words)


def test_a_run_with_a_frozen_backbone_is_not_advised_to_freeze_it(tmp_path):
    run = run_with(tmp_path, 0.712, 0.667)
    assert "or the mode frozen" in help_text(run)
    frozen = replace(run, config=run.config | {"model": run.config["model"] | {"freeze_backbone": True}})
    assert "the mode frozen" not in help_text(frozen)
    assert "or more classes" in help_text(frozen)


def test_words_say_which_images_a_score_is_of(tmp_path):
    run = run_with(tmp_path, 0.712, 0.812)
    digits = replace(run, classes={"learned": ["0", "1"], "validation": ["0", "1"], "test": ["0", "1"]})
    assert "on new images of classes that trained, 10.0 points more" in help_text(digits)
    protocol = run.config.get("protocol", {})
    of_images = replace(run, config=run.config | {"protocol": protocol | {"hold_out": "images"}})
    assert progress_text(of_images).startswith("On the held-out images MAP@R went")
    on_test = replace(run, config=run.config | {"protocol": protocol | {"select_on": "test"}})
    assert progress_text(on_test).startswith("On the test classes MAP@R went")


def test_a_head_on_ready_made_features_cannot_be_frozen_either(tmp_path):
    run = run_with(tmp_path, 0.712, 0.667)
    features = replace(run, config=run.config | {"model": run.config["model"] | {"backbone": "identity"}})
    assert "the mode frozen" not in help_text(features)


def test_nobody_is_told_to_use_random_weights_as_they_are(tmp_path):
    run = run_with(tmp_path, 0.712, 0.667)
    assert "Use that as it is, or train it in another way" in help_text(run)
    scratch = replace(run, result=run.result | {"raw": run.result["raw"] | {"network": "small_cnn before training"}})
    assert "less than small_cnn before training. Train longer, or in another way: " in help_text(scratch)


def test_runs_of_older_versions_have_no_answer(tmp_path):
    run = RunFolder.read(write_run(tmp_path / "run"))
    assert (help_text(run), gain_over_raw(run), raw_name(run)) == (None, None, None)
    assert help_text(replace(run, result=None)) is None


def test_progress_counts_from_the_start_or_else_from_the_first_evaluation(tmp_path):
    run = RunFolder.read(write_run(tmp_path / "run"))
    text = progress_text(run)
    assert "from 3.1 % at the first evaluation (step 50) to" in text
    started = replace(run, start={"step": 0, "map_at_r": 0.01})
    assert "from 1.0 % before training to" in progress_text(started)
    assert progress_text(replace(run, metrics=[])) is None
