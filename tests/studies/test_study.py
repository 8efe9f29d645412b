"""What all studies share: their recipes, their results, and runs that are planned by coordinates."""

import json

import pytest
from support.small_studies import planned

from ccp_dml.config.layers import resolve
from ccp_dml.config.recipes import shipped_recipes
from ccp_dml.errors import UserError
from ccp_dml.studies.study import (
    finished_runs,
    plan_all,
    plan_study_run,
    result_row,
    unfinished_note,
)


@pytest.mark.parametrize("study", ["alternating", "pool", "batch-size", "search"])
def test_every_study_has_the_papers_settings_as_a_recipe(study, ask, tmp_path):
    assert {f"study-{study}", f"study-{study}-full"} <= set(shipped_recipes("studies"))
    request = ask(study, is_full=True)
    planned(request, tmp_path)
    config = resolve(["cub", "c2-ccp", f"study-{study}-full"]).config
    assert (config.protocol.folds, config.protocol.fold) == (3, 0)  # two thirds train, one validates
    assert config.ccp.patience == 3
    assert config.train.max_steps == (10_000 if study == "alternating" else None)


def test_a_training_knows_nothing_of_studies():
    assert resolve(["features", "c2-ccp", "study-pool"]).config.train.max_steps == 800
    with pytest.raises(UserError, match=r"Unknown key 'study\.repeats'"):
        resolve(["features", "c2"], ["study.repeats=3"])


def test_coordinates_name_the_folder_and_repeats_change_the_seed_alone(ask, tmp_path):
    request = ask("pool", "run.seed=5")
    first, second = (
        plan_study_run(request, tmp_path, "c2-ccp", {"proxies": 8, "pool": 12}, ("ccp.weight=0.5",), repeat)
        for repeat in (0, 1)
    )
    assert first.run.folder == tmp_path / "c2-ccp" / "proxies8-pool12" / "repeat0"
    assert first.coordinates == {"loss": "c2", "method": "c2-ccp", "proxies": 8, "pool": 12, "repeat": 0}
    assert (first.run.config.run.seed, second.run.config.run.seed) == (5, 6)
    assert first.run.config.ccp == second.run.config.ccp
    assert first.run.config.ccp.weight == 0.5


@pytest.mark.parametrize(
    ("study", "setting", "message"),
    [
        (
            "pool",
            "ccp.pool_per_class=3",
            r"--set ccp\.pool_per_class would have no effect.*study\.pool_per_class instead",
        ),
        (
            "batch-size",
            "train.images_per_class=2",
            r"--set train\.images_per_class would.*study\.images_per_class instead",
        ),
    ],
)
def test_what_a_study_sets_itself_is_refused(study, setting, message, ask, tmp_path):
    with pytest.raises(UserError, match=message):
        planned(ask(study, setting), tmp_path)


def test_a_search_begins_with_what_the_user_sets(ask, tmp_path):
    plan = planned(ask("search", "ccp.weight=0.25"), tmp_path)
    assert plan.rehearsed[0].config.ccp.weight == 0.25


def test_a_plan_counts_what_is_done_and_names_what_is_missing(ask, tmp_path):
    runs = plan_all(ask("alternating"), tmp_path, 2, ("", "-ccp")).runs
    assert [one.run.name for one in runs] == ["c2/repeat0", "c2-ccp/repeat0", "c2/repeat1", "c2-ccp/repeat1"]
    done = runs[1].run.folder
    done.mkdir(parents=True)
    (done / "config.toml").write_text("")
    scores = {"map_at_r": 0.25, "precision_at_1": 0.5, "r_precision": 0.375}
    facts = {"selected_on": "validation", "best_step": 4, "steps": 8, "problems": 2, "seconds": 1.5, "seed": 0}
    (done / "result.json").write_text(json.dumps({"validation": scores, "test": {**scores, "map_at_r": 0.75}, **facts}))
    plan = plan_all(ask("alternating"), tmp_path, 2, ("", "-ccp"))
    assert (plan.done, plan.total, len(plan.rehearsed)) == (1, 4, 3)
    (finished,) = finished_runs(plan)
    assert (finished.score(), finished.score("validation", "r_precision")) == (75.0, 37.5)
    row = result_row(finished, tmp_path)
    assert (row["folder"], row["test_map_at_r"], row["validation_map_at_r"]) == ("c2-ccp/repeat0", 0.75, 0.25)
    assert facts.items() <= row.items()
    assert unfinished_note(plan, [finished]) == ["3 of 4 runs are not finished; the same command goes on."]
    assert unfinished_note(plan, [finished] * 4) == []
