from dataclasses import replace
from pathlib import Path

import pytest
from support.made_up_runs import write_run

from ccp_dml.config.layers import flatten, known_keys, resolve
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.reports.advice import MARGINS, RULES, Advice, Case, advise, advise_run

SETTINGS = dict(flatten(resolve(["folder", "frozen", "c2-ccp"], ["ccp.until=stall"]).config.as_tables()))

GOOD = {
    "map_at_r": 0.5,
    "active_positives": 0.6,
    "active_negatives": 0.1,
    "embedding_drift": 0.3,
    "proxy_drift": 0.2,
    "staleness": 0.2,
    "covering_radius": 0.4,
    "problem": 1,
}
START = {"step": 0, "problem": 0, "map_at_r": 0.2}


def case(count=6, settings=None, outline=None, start=START, **values):
    """A run whose evaluations are good but for `values`."""
    rows = [{"step": 25 * (number + 1), **GOOD, "map_at_r": 0.5 + 0.01 * number, **values} for number in range(count)]
    return Case(SETTINGS | (settings or {}), rows, start, outline or {})


def with_row(of: Case, at: int, **values) -> Case:
    """The same run, but for what one of its evaluations says."""
    return replace(of, rows=[{**row, **values} if number == at else row for number, row in enumerate(of.rows)])


def only(found: list[Advice]) -> Advice:
    assert len(found) == 1, found
    return found[0]


APPLY = {
    "few-validation-classes": (
        case(0, outline={"validation_classes": 2}),
        "Only 2 classes validate: which evaluation is best is half chance. Add classes to data.root, or let fewer of "
        "them test with data.test_share=0.25.",
    ),
    "enlarged-images": (
        case(0, {"data.crop": 227, "model.pretrained": False}, {"image_side": 105}),
        "Images of 105 px are enlarged to 227, which costs time and adds no detail. Set data.crop=104 and data.resize=",
    ),
    "fine-tuning-rate": (
        case(0, {"model.pretrained": False, "model.backbone": "small_cnn", "optim.lr": 1e-5}),
        "small_cnn starts from random weights, and optim.lr=1e-05 is a rate for fine-tuning",
    ),
    "no-proxies": (
        case(0, {"ccp.start_step": 450, "train.evaluate_every": 100, "train.max_steps": 500}),
        "train.max_steps=500 ends the training before the first proxies, which come after 500 steps: it is the loss "
        "alone. Raise it, or lower ccp.start_step (now 450).",
    ),
    "no-memory": (
        case(0, {"ccp.mode": "off", "xbm.enabled": True, "xbm.start_step": 500, "train.max_steps": 500}),
        "train.max_steps=500 ends the training before the memory of past batches, which comes after 500 steps: it is "
        "the loss alone. Raise it, or lower xbm.start_step (now 500).",
    ),
    "no-active-negatives": (
        case(3, active_negatives=0.0),
        "the margin is out of reach, so classes contract but are not pushed apart. Raise loss.negative_margin (now",
    ),
    "no-active-pairs": (case(5, active_negatives=0.0, active_positives=0.0), "No active pair in the last 5"),
    "collapse": (case(3, active_negatives=1.0, active_positives=0.0), "All embeddings lie in one place"),
    "unmoved": (case(5, map_at_r=0.202), "MAP@R has not moved since step 0 (20.0 %, now 20.2 %)"),
    "proxies-do-not-move": (case(3, proxy_drift=0.01), "(drift 0.01 against 0.30): they hold it back. Raise"),
    "stale-proxies": (case(5, staleness=0.8, proxy_drift=0.1), "Proxies are 2.0 covering radii from their images"),
}


@pytest.mark.parametrize("name", APPLY)
def test_a_rule_speaks_where_it_applies(name):
    applies, words = APPLY[name]
    found = {advice.id: advice for advice in advise(applies)}
    advice = found[name]
    assert words in advice.text
    assert advice.setting in advice.text
    assert advice.setting in known_keys() or advice.setting.startswith("loss.")
    assert "\n" not in advice.text
    assert found.keys() <= {name, "best-is-first"}


def test_the_best_that_is_the_first_is_told_after_five_evaluations():
    falling = case(5)
    falling = replace(falling, rows=[{**row, "map_at_r": 0.9 - 0.05 * at} for at, row in enumerate(falling.rows)])
    advice = only(advise(falling))
    assert advice.id == "best-is-first"
    assert "The first evaluation (step 25) is the best of 5" in advice.text
    assert advise(replace(falling, rows=falling.rows[:4])) == []


@pytest.mark.parametrize(
    "silent",
    [
        case(),
        case(0),
        case(0, {"model.pretrained": False, "model.backbone": "identity", "optim.lr": 1e-5}),
        case(0, {"model.pretrained": False, "model.weights": "x", "optim.lr": 1e-5}),
        case(0, {"model.pretrained": False, "optim.lr": 1e-3}),
        case(0, outline={"validation_classes": 3, "image_side": 150}),
        case(0, {"data.crop": 224}, {"image_side": 128}),  # pretrained: better than the images as they are
        case(0, {"data.crop": 224, "model.pretrained": False, "model.weights": "x"}, {"image_side": 128}),
        case(0, {"protocol.hold_out": "images"}, {"validation_classes": 2}),
        case(0, {"ccp.start_step": 450, "train.evaluate_every": 100, "train.max_steps": 501}),
        case(0, {"ccp.start_step": 450, "train.max_steps": 500, "ccp.mode": "off"}),
        case(0, {"ccp.start_step": 450, "train.max_steps": 500, "protocol.hold_out": "nothing"}),
        case(0, {"ccp.mode": "off", "xbm.enabled": True, "xbm.start_step": 500, "train.max_steps": 501}),
        case(0, {"ccp.mode": "off", "xbm.enabled": True, "xbm.start_step": 500}),  # patience ends it
        case(0, {"ccp.mode": "off", "xbm.start_step": 500, "train.max_steps": 500}),
        case(2, active_negatives=0.0),
        with_row(case(5, active_negatives=0.0), 0, active_negatives=0.1),  # learned to tell classes apart, and gained
        case(5, map_at_r=0.99, start={"step": 0, "problem": 0, "map_at_r": 0.99}),  # nothing to gain
        case(5, map_at_r=0.006, start={"step": 0, "problem": 0, "map_at_r": 0.003}),  # twice as good
        with_row(case(6, map_at_r=0.499), 0, map_at_r=0.5),  # as good as the first
        case(4, active_negatives=0.0, active_positives=0.0),
        case(3, active_negatives=1.0),
        case(4, map_at_r=0.202),
        case(5, map_at_r=0.202, start=None),
        case(3, proxy_drift=0.01, embedding_drift=0.05),
        case(3, {"ccp.until": "behind"}, proxy_drift=0.01),
        case(5, {"ccp.until": "stale"}, staleness=0.8, proxy_drift=0.1),
        case(5, {"ccp.until": "behind"}, staleness=0.8, proxy_drift=0.1),
        case(5, {"ccp.mode": "one-problem"}, staleness=0.8, proxy_drift=0.1),
        case(5, staleness=0.8, proxy_drift=0.1, covering_radius=0.0),
        case(5, staleness=0.8, proxy_drift=0.15),  # half as far as the network: they keep up
    ],
)
def test_no_rule_speaks_of_a_run_that_goes_well(silent):
    assert advise(silent) == []


def test_a_fall_below_half_of_the_start_is_a_collapse():
    advice = only(advise(case(3, map_at_r=0.05)))
    assert advice.id == "collapse"
    assert "MAP@R fell from 20.0 % before training to 5.0 %" in advice.text


@pytest.mark.parametrize(("loss", "margin"), MARGINS.items())
def test_each_loss_has_an_argument_that_brings_negatives_back(loss, margin):
    settings = dict(flatten(resolve(["cub", loss]).config.as_tables()))
    advice = only(advise(replace(case(3, active_negatives=0.0), settings=settings | {"model.pretrained": True})))
    assert advice.setting == margin[0]
    assert margin[0] in settings


@pytest.mark.parametrize(("settings", "key"), [({}, "data.root"), ({"data.path": "birds.csv"}, "data.path")])
def test_no_margin_is_advised_where_classes_are_too_few_to_have_negatives(settings, key):
    advice = only(advise(case(3, settings, {"learned_classes": 3}, active_negatives=0.0)))
    assert (advice.id, advice.setting) == ("no-active-negatives", key)
    assert "3 classes to learn from are told apart already, and no margin changes that. Add classes to" in advice.text
    assert (
        only(advise(case(3, settings, {"learned_classes": 4}, active_negatives=0.0))).setting == "loss.negative_margin"
    )


def test_negatives_that_were_active_are_missed_where_nothing_was_gained():
    lost = with_row(case(5, active_negatives=0.0, map_at_r=0.15), 0, active_negatives=0.1)
    assert only(advise(lost)).id == "no-active-negatives"


@pytest.mark.parametrize(
    ("settings", "learned", "words"),
    [
        ({"data.test_share": 0.2}, 8, "Add classes to data.root, or let more of them validate with protocol.folds=3."),
        (
            {"data.name": "features", "data.path": "x"},
            4,
            "data.path, or let more of them validate with protocol.folds=2",
        ),
        ({"data.test_share": 0.2}, 2, "Add classes to data.root."),
    ],
)
def test_classes_that_validate_come_from_where_the_data_have_them(settings, learned, words):
    advice = only(advise(case(0, settings, {"validation_classes": 2, "learned_classes": learned})))
    assert words in advice.text
    assert advice.setting in advice.text


def test_no_share_is_advised_where_the_data_say_what_tests():
    outline = {"validation_classes": 2, "learned_classes": 2}
    assert only(advise(case(0, outline=outline | {"says_what_tests": True}))).text.endswith("Add classes to data.root.")
    own = case(0, {"data.name": "mine.py:Photos"}, outline | {"says_what_tests": False})
    assert "data.test_share=0.25" in only(advise(own)).text


def test_one_cause_is_told_once():
    still = {"map_at_r": 0.2, "active_negatives": 0.0}
    assert only(advise(case(5, **still))).id == "no-active-negatives"
    slow = case(5, {"loss.name": "c1", "model.pretrained": False, "optim.lr": 1e-6}, map_at_r=0.2)
    assert [advice.setting for advice in advise(slow)] == ["optim.lr", "optim.lr"]


def test_c1_that_stands_still_is_told_about_short_vectors():
    advice = only(advise(case(5, {"loss.name": "c1"}, map_at_r=0.2)))
    assert (advice.id, advice.setting) == ("unmoved", "model.normalise")


def test_every_rule_is_explained_in_the_documents():
    page = (Path(__file__).parents[2] / "docs" / "algorithm.md").read_text(encoding="utf-8")
    assert {*APPLY, "best-is-first"} == RULES.keys()
    for name in RULES:
        assert f"`{name}`" in page


def test_advice_on_a_folder(tmp_path):
    run = RunFolder.read(write_run(tmp_path / "run"))
    assert advise_run(run) == []
    assert only(advise_run(replace(run, outline={"validation_classes": 2}))).id == "few-validation-classes"
