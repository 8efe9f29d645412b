import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from support.made_up_runs import write_run

import ccp_dml as ccp
from ccp_dml.cli import main
from ccp_dml.config.layers import resolve
from ccp_dml.data.labelled import DataHalves, LabelledSet, TestSet
from ccp_dml.data.sampler import ClassBalancedBatches
from ccp_dml.errors import UserError
from ccp_dml.records.logbook import Logbook
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.runs.datasets import build_data, classes_to_learn_and_to_select_on
from ccp_dml.runs.start import (
    final_settings,
    fit_to_data,
    lengths_of_problems,
    method_note,
    outline,
    refuse_without_data,
    typical_side,
    wanted_run,
)


def wanted(recipes, *settings, seed=None):
    return wanted_run(recipes.split(), settings, seed, build_data)


@pytest.mark.parametrize(
    ("recipes", "settings", "words"),
    [
        ("c2-ccp", ["data.root=photos"], "No data set is named; data.root is read by folder"),
        ("glyphs c2-ccp", ["data.root=photos"], "the data set glyphs does not read it"),
        ("glyphs c1 c2-ccp", [], "c1 and c2-ccp are 2 methods"),
        ("frozen glyphs c2", [], "write glyphs frozen c2"),
        ("folder c2-ccp", ["data.root=photos"], "Say how to train with a mode, as in `ccp train folder frozen c2-ccp`"),
        ("c2-ccp", ["data.name=mine.py:Data"], "Say how to train with a mode"),
    ],
)
def test_what_would_do_something_else_than_was_meant_is_refused(recipes, settings, words):
    with pytest.raises(UserError) as refused:
        wanted(recipes, *settings)
    assert words in str(refused.value)


def test_the_configuration_is_complete_and_a_missing_method_is_told(features):
    found = wanted("features", f"data.path={features}", seed=7)
    assert found.config.run.seed == 7
    assert found.config.loss.arguments["normalise"] == "clip"
    note, fitted = found.notes
    assert fitted.startswith("Fitted to ")
    assert "No method is named" in note
    assert wanted("features c2", f"data.path={features}").notes == (fitted,)


def test_ones_own_images_get_sizes_folds_and_batches_that_fit(image_folder):
    settings = (f"data.root={image_folder}", "data.classes=5")
    found = wanted("folder scratch c2", *settings)
    assert (found.config.data.resize, found.config.data.crop) == (36, 36)
    assert found.config.protocol.folds == 2
    assert found.notes[0].startswith("Fitted to 5 training classes: protocol.folds=2")
    assert wanted("folder scratch c2", *settings, "protocol.folds=3").config.protocol.folds == 3


@pytest.mark.parametrize("key", ["folds", "fold"])
def test_folds_in_a_file_of_ones_own_stay(image_folder, tmp_path, key):
    own = tmp_path / "mine.toml"
    own.write_text(f"[protocol]\n{key} = 3\n")
    found = wanted(f"folder scratch c2 {own}", f"data.root={image_folder}", "data.classes=5").config.protocol
    assert getattr(found, key) == 3


def halves(classes, images=6):
    labels = torch.arange(classes).repeat_interleave(images)
    names = tuple(f"class {number}" for number in range(classes))
    part = LabelledSet(None, torch.arange(len(labels)), labels, names)
    return DataHalves(part, TestSet(part), says_what_tests=False)


def fitted(recipes, classes, *settings, images=6):
    config = resolve(recipes.split(), settings).config
    return fit_to_data(config, halves(classes, images), [setting.partition("=")[0] for setting in settings])


@pytest.mark.parametrize("method", ["c2", "c2-ccp", "proxy-anchor"])
@pytest.mark.parametrize("classes", range(2, 45))
def test_whatever_the_number_of_classes_training_can_begin(method, classes):
    config, _ = fitted(f"folder {method}", classes)
    learned, validation = classes_to_learn_and_to_select_on(config.protocol, halves(classes))
    batches = ClassBalancedBatches(learned.labels, config.train.classes_per_batch, config.train.images_per_class, 0)
    assert len(batches.batch(0, 0)) == config.train.classes_per_batch * config.train.images_per_class
    assert len(validation.queries.class_names) >= 2


def test_data_that_fit_stay_as_they_are():
    config = resolve(["csv", "c2"]).config
    assert fit_to_data(config, halves(12), ()) == (config, [])


def test_published_data_sets_keep_their_protocol():
    never = pytest.fail  # data that nothing is fitted to are not read, either
    config = wanted_run(["cub", "c2"], ["data.root=x"], None, never).config
    assert (config.protocol.folds, config.train.classes_per_batch) == (4, 8)


def test_a_data_set_in_python_is_fitted_to(tmp_path):
    (tmp_path / "mine.py").write_text("class Data: ...")
    settings = [f"data.name={tmp_path}/mine.py:Data", "model.pretrained=true"]
    config = wanted_run(["c2"], settings, None, lambda _: halves(4)).config
    assert (config.protocol.folds, config.train.classes_per_batch) == (2, 2)


def test_a_batch_stays_as_large():
    config, notes = fitted("folder c2", 10)
    assert (config.train.classes_per_batch, config.train.images_per_class) == (8, 4)
    config, notes = fitted("folder c2", 5)
    assert (config.train.classes_per_batch, config.train.images_per_class) == (3, 11)
    assert notes == [
        "Fitted to 5 training classes: protocol.folds=2, train.classes_per_batch=3, train.images_per_class=11."
    ]


def test_three_classes_are_validated_by_images():
    config, notes = fitted("folder c2", 3, images=7)
    assert (config.protocol.hold_out, config.protocol.folds) == ("images", 3)
    assert "protocol.hold_out=images" in notes[0]


def test_vectors_are_fitted_like_images():
    config, notes = fitted("features c2-ccp", 3, images=6)
    assert (config.protocol.hold_out, config.protocol.folds) == ("images", 3)
    assert len(notes) == 1


def test_too_few_classes_of_too_few_images_are_refused_in_one_sentence():
    with pytest.raises(UserError) as refusal:
        fitted("folder c2", 3, images=2)
    assert str(refusal.value) == (
        "3 training classes are too few to learn from some and validate on others (4 are needed), and class class 0 "
        "has too few images to validate on a part of them (2; 4 are needed): add classes or images, or let fewer "
        "classes test with data.test_share."
    )
    config = resolve(["folder", "c2"]).config
    with pytest.raises(UserError, match=r"or let fewer classes test\.$"):
        fit_to_data(config, replace(halves(3, 2), says_what_tests=True), ())
    assert fitted("folder c2", 3, images=4)[0].protocol.folds == 2
    assert fitted("folder c2", 4, images=2)[0].protocol.hold_out == "classes"


def test_what_a_person_set_stays():
    config, _ = fitted("folder c2", 5, "protocol.folds=4", "train.classes_per_batch=8")
    assert (config.protocol.folds, config.train.classes_per_batch, config.train.images_per_class) == (4, 8, 4)
    config, _ = fitted("folder c2", 5, "train.images_per_class=2")
    assert (config.train.classes_per_batch, config.train.images_per_class) == (3, 2)


QUICK = ("train.max_steps=12", "train.evaluate_every=4", "train.classes_per_batch=4", "model.embedding_dim=6")


def options(features, *settings):
    return [part for setting in (f"data.path={features}", *QUICK, *settings) for part in ("--set", setting)]


def test_steps_and_pace_are_those_of_the_run(tmp_path):
    write_run(tmp_path / "run")
    found = final_settings(tmp_path / "run")
    best = RunFolder.read(tmp_path / "run").best_evaluation()["step"]
    assert f"train.max_steps={best}" in found
    assert "protocol.hold_out=nothing" in found
    assert "ccp.steps_per_problem=390" in found  # 1,950 steps, five problems
    assert "ccp.start_step=0" in found
    assert final_settings(write_run(tmp_path / "baseline", is_ccp=False))[-1].startswith("train.max_steps=")


@pytest.mark.parametrize(("rewind", "expected"), [(False, ([200], [200, 150])), (True, ([150], [50, 150]))])
def test_steps_that_rewinding_threw_away_do_not_count(rewind, expected):
    """200 steps without proxies, then problems from steps 200 and 400 on; the best evaluation is at step 550."""
    scores = [10, 20, 30, 25, 40, 30, 30, 30, 35, 30, 50]
    rows = [{"step": 50 * (n + 1), "problem": 1 + n // 4, "map_at_r": score} for n, score in enumerate(scores)]
    for n, radius in ((0, None), (4, 0.5), (8, 0.4)):
        rows[n]["problems_begun"] = [{"problem": 1 + n // 4, "step": 50 * n, "covering_radius": radius}]
    run = RunFolder(Path("run"), {"ccp": {"rewind": rewind, "until": "stall"}}, {}, rows, {"best_step": 550}, None)
    assert lengths_of_problems(run, rows[-1]) == expected


def test_an_unfinished_run_tells_nothing(tmp_path):
    with pytest.raises(UserError, match=r"is not finished.*--resume"):
        final_settings(write_run(tmp_path / "run", finished=False))


def test_every_class_trains_and_no_score_is_claimed(features, tmp_path, capsys):
    first, final = tmp_path / "run", tmp_path / "final"
    command = ["train", "features", "c2-ccp", *options(features, "ccp.patience=1")]
    assert main([*command, "--out", str(first)]) == 0
    assert main(["train", "features", "--final", str(first), "--out", str(final)]) == 0
    shown = capsys.readouterr()
    assert "learning from all 16 classes, so that no score can be measured" in " ".join(shown.err.split())
    assert "No score was measured" in shown.out
    assert f"ccp evaluate {first} --json" in " ".join(shown.out.split())
    assert f"ccp evaluate {final}" not in " ".join(shown.out.split())  # it would be refused
    before, result = (json.loads((folder / "result.json").read_text()) for folder in (first, final))
    assert (result["test"], result["validation"], result["raw"], result["start"]) == (None, None, None, None)
    assert f"train.max_steps={result['steps']}" in final_settings(first)
    assert result["best_step"] == result["steps"] <= before["best_step"]
    assert len(json.loads((final / "classes.json").read_text())["learned"]) == 16
    assert Logbook.reopen(final).config().protocol.hold_out == "nothing"
    assert "No score was measured." in (final / "report.html").read_text()
    weights, last = ccp.load(final).network.state_dict(), torch.load(final / "checkpoint.pt", weights_only=True)
    torch.testing.assert_close(weights["linear.weight"].cpu(), last["network"]["linear.weight"], rtol=0, atol=0)
    for refused in (["evaluate", str(final)], ["certify", str(final)], ["train", "--final", str(final)]):
        assert main(refused) == 2
    assert main(["export", str(final), "--out", str(tmp_path / "model")]) == 0
    card = (tmp_path / "model" / "README.md").read_text()
    assert "No score was measured on this model: every class trained" in card
    assert main(["train", "features", "c1", "--final", str(first), "--out", str(tmp_path / "other")]) == 2
    assert "loss.name = 'c2', not 'c1'" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("pace", ["stall", "behind"])
def test_without_a_score_nothing_would_end_the_training(pace, features, tmp_path, capsys):
    held = [
        "train",
        "features",
        "c2-ccp",
        *options(features, "protocol.hold_out=nothing", f"ccp.until={pace}"),
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(held) == 2
    assert "set ccp.until=stale or steps" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("recipes", "settings", "words"),
    [
        (
            "c2-ccp",
            ["data.root=photos"],
            "data.root is read by folder, for example: ccp train folder frozen c2-ccp --set data",
        ),
        (
            "c2",
            ["data.path=a.csv"],
            "data.path is read by csv, for example: ccp train csv frozen c2 --set data.path=a.csv",
        ),
        ("c2", [], "No data set is named; for example: ccp train glyphs c2 ("),
    ],
)
def test_a_data_set_must_be_named(recipes, settings, words):
    resolved = resolve(recipes.split(), settings)
    with pytest.raises(UserError, match="No data set is named") as caught:
        refuse_without_data(resolved, recipes.split(), settings)
    assert words in str(caught.value)


def test_a_data_set_may_be_named_in_any_layer():
    refuse_without_data(resolve(["c2"], ["data.name=glyphs"]), ["c2"], ["data.name=glyphs"])


def test_a_run_without_a_method_says_what_trains():
    assert method_note(resolve(["cub", "c2"])) is None
    assert "No method is named: the loss c2 trains by itself" in str(method_note(resolve(["cub", "frozen"])))


def described(recipes, *settings):
    config = resolve(recipes.split(), settings).config
    halves = build_data(config.data)
    return outline(config, halves, *classes_to_learn_and_to_select_on(config.protocol, halves))


@pytest.fixture
def photos(tmp_path):
    for label in range(20):
        (tmp_path / f"class{label:02}").mkdir()
        for number in range(24):
            Image.new("RGB", (105, 140), (label, number, 0)).save(tmp_path / f"class{label:02}" / f"{number}.png")
    return tmp_path


def test_the_sentence_says_what_will_happen(photos):
    found = described("folder c2-ccp", f"data.root={photos}", "model.backbone=small_cnn")
    assert found.sentence == (
        "20 classes, 480 images: learning from 8 classes, validating on 2, testing on 10; small_cnn from random "
        "weights; images 105 px enlarged to 227; C2 with CCP, 8 proxies per class."
    )
    assert (found.learned_classes, found.validation_classes, found.test_classes, found.image_side) == (8, 2, 10, 105)


def test_images_are_measured_without_augmentation_as_well(photos):
    found = described("folder c2", f"data.root={photos}", "model.backbone=small_cnn", "data.augment=none")
    assert found.image_side == 105


@pytest.mark.parametrize(
    ("recipes", "settings", "words"),
    [
        (
            "folder frozen c1-proxy",
            [],
            ["frozen", "images 105 px enlarged to 160", "C1 with 8 proxies per class, chosen once"],
        ),
        ("folder top c2", [], ["with pretrained weights, frozen below blocks.5"]),
        ("folder c2-xbm", ["data.crop=64"], ["images 105 px seen at 64", "C2 with a memory of 25 batches"]),
        ("folder ms-metrix", [], ["MS with mixtures of embeddings"]),
        ("folder c2-ccp-s", ["model.pretrained=true"], ["resnet50 with pretrained weights;", "1 proxy per class"]),
        ("folder proxy-anchor", ["model.weights=w.pt"], ["resnet50 with the weights in", "proxy-anchor alone"]),
        (
            "folder c2",
            ["protocol.hold_out=images"],
            ["learning from 10 classes, validating on 60 other images of them"],
        ),
        ("folder c2", ["protocol.select_on=test"], ["learning from 10 classes, selecting on the test classes"]),
    ],
)
def test_the_sentence_follows_the_settings(photos, recipes, settings, words):
    found = described(recipes, f"data.root={photos}", *settings)
    assert all(word in found.sentence for word in words), found.sentence


def test_vectors_have_no_size_in_pixels(features):
    found = described("features c2", f"data.path={features}", "model.embedding_dim=6")
    assert found.image_side is None
    assert "vectors: learning from" in found.sentence
    assert "a head of 6 numbers on vectors; C2 alone." in found.sentence
    by_images = described("features c2", f"data.path={features}", "protocol.hold_out=images", "protocol.folds=2")
    assert "other vectors of them" in by_images.sentence


def test_a_typical_side_is_the_median_of_those_that_can_be_read(photos):
    (photos / "class00" / "0.png").write_bytes(b"no image")
    Image.new("RGB", (2000, 2000)).save(photos / "class01" / "0.png")
    halves = build_data(resolve(["folder"], [f"data.root={photos}"]).config.data)
    assert typical_side(halves.train) == 105
