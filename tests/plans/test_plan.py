"""Plans: what a run is made of, and how far it has come."""

import pytest
import tomli_w

from ccp_dml.config.layers import resolve
from ccp_dml.errors import UserError
from ccp_dml.plans.plan import RunState, plan_run, refuse_other_settings, refuse_unread_settings, state_of


def test_sides_are_settled_before_a_run_is_planned(image_folder, tmp_path):
    settings = (f"data.root={image_folder}",)
    assert plan_run("a", tmp_path / "a", ("folder", "scratch", "c2"), settings).config.data.pixels == (36, 36)


def planned(folder, *settings):
    return plan_run("name", folder, ["folder", "c2-ccp"], ["data.root=x", "model.pretrained=true", *settings])


def test_a_plan_for_one_s_own_images_must_say_how_to_train(tmp_path):
    with pytest.raises(UserError, match=r"Say how to train with a mode.*`--data folder,frozen`"):
        plan_run("name", tmp_path, ["folder", "c2-ccp"], ["data.root=x"])


def started(run):
    run.folder.mkdir(parents=True)
    (run.folder / "config.toml").write_text(tomli_w.dumps(run.config.as_tables()))


def test_the_command_of_a_run_trains_the_same_configuration(tmp_path):
    run = planned(tmp_path / "run", "optim.lr=0.01", "run.seed=5")
    assert run.command[:4] == ["ccp", "train", "folder", "c2-ccp"]
    assert run.command[-2:] == ["--out", str(tmp_path / "run")]
    settings = [text for before, text in zip(run.command, run.command[1:], strict=False) if before == "--set"]
    again = resolve(run.recipes, settings).config
    assert (again.optim.lr, again.run.seed, again.ccp.mode) == (0.01, 5, "alternating")
    assert again.model_dump(exclude={"loss"}) == run.config.model_dump(exclude={"loss"})


def test_the_command_leaves_out_what_the_run_does_not_read(tmp_path):
    settings = ["data.root=x", "ccp.weight=1", "optim.lr=0.1", "model.pretrained=true"]
    assert "ccp.weight=1" not in plan_run("name", tmp_path, ["folder", "c2"], settings).command
    assert "ccp.weight=1" in plan_run("name", tmp_path, ["folder", "c2-ccp"], settings).command


def test_settings_of_data_or_model_that_no_run_reads_are_refused(tmp_path):
    runs = [plan_run(method, tmp_path, ["glyphs", method], []) for method in ("c2", "c1")]
    refuse_unread_settings(runs, ["ccp.weight=1", "optim.lr=1"])  # c2-ccp may join later
    with pytest.raises(UserError, match=r"--set data\.root would have no effect"):
        refuse_unread_settings(runs, ["data.root=x"])


def test_the_cost_is_known_only_with_a_limit(tmp_path):
    assert planned(tmp_path).steps is None
    assert planned(tmp_path, "train.max_steps=300").steps == 300


def test_the_state_of_a_run_is_open_partly_and_done(tmp_path):
    run = planned(tmp_path / "run")
    assert state_of(run.folder) == RunState("open", 0)
    started(run)
    assert state_of(run.folder) == RunState("partly", 0)
    (run.folder / "metrics.jsonl").write_text('{"step": 25}\n{"step": 50}\n{"step": 7')  # killed while writing
    assert state_of(run.folder) == RunState("partly", 50)
    assert not run.is_done
    (run.folder / "result.json").write_text("{}")
    assert state_of(run.folder) == RunState("done", 50)
    assert run.is_done


def test_a_folder_with_other_settings_is_refused(tmp_path):
    started(planned(tmp_path / "run", "optim.lr=0.01"))
    refuse_other_settings([planned(tmp_path / "run", "optim.lr=0.01"), planned(tmp_path / "not there")])
    with pytest.raises(UserError, match=r"optim\.lr = 0\.01, not 0\.02; delete it to train it anew, or"):
        refuse_other_settings([planned(tmp_path / "run", "optim.lr=0.02")])
    with pytest.raises(UserError, match=r"train\.max_steps = None, not 10"):
        refuse_other_settings([planned(tmp_path / "run", "optim.lr=0.01", "train.max_steps=10")])


def test_how_a_run_is_computed_may_change(tmp_path):
    started(planned(tmp_path / "run"))
    refuse_other_settings([planned(tmp_path / "run", "run.workers=0", "run.device=cpu", "run.evaluation_batch=7")])


@pytest.mark.parametrize("setting", ["protocol.hold_out=nothing", "data.test_share=0"])
def test_runs_without_test_classes_are_not_compared(tmp_path, setting):
    with pytest.raises(UserError, match="Runs are compared on test classes"):
        planned(tmp_path, setting)
