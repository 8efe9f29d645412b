"""Plans as commands show them, hold their lock, and tell what failed."""

import json
import re
import sys
from dataclasses import replace

import pytest
import torch

from ccp_dml.commands.many_runs.plans import (
    alone_with_plan,
    chosen_runner,
    failed_values,
    forecast_text,
    plan_totals,
    refuse_mistakes,
    show_failures,
    show_plan,
)
from ccp_dml.errors import UserError
from ccp_dml.foundation.locks import lock
from ccp_dml.plans.cluster import ClusterRunner
from ccp_dml.plans.forecast import Forecast
from ccp_dml.plans.plan import plan_run
from ccp_dml.plans.runner import Failure, LocalRunner
from ccp_dml.studies.study import StudyRun


@pytest.fixture
def entries(features, tmp_path):
    """Three runs of 100 steps: one done, one at step 40, one that has not begun."""
    names = ("done", "partly", "open")
    settings = [f"data.path={features}", "train.max_steps=100", "run.seed=7", "train.classes_per_batch=4"]
    runs = [plan_run(name, tmp_path / name, ["features", "c2"], settings) for name in names]
    for run in runs[:2]:
        run.folder.mkdir()
        (run.folder / "config.toml").write_text("")
        (run.folder / "metrics.jsonl").write_text('{"step": 40, "map_at_r": 0.5}\n')
    (runs[0].folder / "result.json").write_text("{}")
    return [StudyRun({"method": run.name}, run) for run in runs]


def test_totals_count_what_is_left(entries):
    assert plan_totals([one.run for one in entries]) == {"done": 1, "partly": 1, "open": 1, "steps_left": 60 + 100}


def test_a_run_that_patience_ends_makes_the_rest_unknown(entries):
    config = entries[2].run.config
    endless = config.train.model_copy(update={"max_steps": None})
    unending = replace(entries[2].run, config=config.model_copy(update={"train": endless}))
    assert plan_totals([entries[0].run, unending])["steps_left"] is None


def test_a_plan_as_json_names_states_and_places(entries, tmp_path, capsys):
    show_plan(entries, tmp_path, as_json=True, note="more later")
    shown = json.loads(capsys.readouterr().out)
    assert [(run["method"], run["state"], run["steps_done"]) for run in shown["runs"][1:]] == [
        ("partly", "partly", 40),
        ("open", "open", 0),
    ]
    assert {run["seed"] for run in shown["runs"]} == {7}
    assert shown["runs"][0]["folder"] == str(tmp_path / "done")
    assert shown["note"] == "more later"
    assert shown["totals"]["seconds_left"] > 0


def test_a_plan_for_people_says_what_is_left(entries, tmp_path, capsys):
    show_plan(entries, tmp_path, as_json=False, note="More is planned later.")
    shown = " ".join(capsys.readouterr().out.split())
    assert "partly, at step 40" in shown
    assert "1 done, 1 partly, 1 open; left to train: at most 160 steps." in shown
    assert "More is planned later." in shown
    assert re.search(r"About [\d.]+ m?s for 2 runs on this machine, one at a time; measured on a few steps", shown)


def test_a_plan_without_its_data_is_refused(tmp_path):
    gone = plan_run("run", tmp_path / "run", ["features", "c2"], ["data.path=gone.npz"])
    with pytest.raises(UserError, match=r"there is no features file .*gone\.npz"):
        show_plan([StudyRun({}, gone)], tmp_path, as_json=False)


def test_finished_plans_need_neither_data_nor_time(entries, features, tmp_path, capsys):
    features.unlink()
    show_plan(entries[:1], tmp_path, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["totals"]["seconds_left"], shown["notes"]) == (0.0, [])


def test_forecasts_say_what_they_leave_out():
    assert forecast_text(Forecast(7260.0, 0, 0.0), 3).startswith("About 2 h 1 min for 3 runs on this machine, one at a")
    text = forecast_text(Forecast(300.0, 2, 60.0), 3)
    assert "with 1,000 steps for each of the 2 that patience ends" in text
    assert "1 min 0 s of it for features unless they are in the cache" in text
    assert text.endswith("The selection of proxies, the start of a worker, maps and pages come on top.")


def test_failures_are_told_with_their_logs(entries, tmp_path, capsys):
    failures = [Failure(entries[1].run, "out of memory [really]")]
    show_failures(failures, 3)
    shown = capsys.readouterr().err
    assert "1 of 3 runs failed; the same command tries them again:" in shown
    assert f"partly: out of memory [really] (log: {tmp_path / 'partly' / 'log.txt'})" in shown
    assert failed_values(failures) == [
        {"name": "partly", "message": "out of memory [really]", "folder": str(tmp_path / "partly")}
    ]


def test_nobody_else_works_in_the_folder_of_a_plan(tmp_path):
    with (
        alone_with_plan("study", tmp_path / "out", []),
        pytest.raises(UserError, match="locked"),
        lock(tmp_path / "out" / ".lock", "locked"),
    ):
        pytest.fail("two hold one lock")
    with lock(tmp_path / "out" / ".lock", "locked"):
        pass


def test_runs_are_trained_here_or_on_a_cluster(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert chosen_runner(tmp_path, None, None) == LocalRunner(3)
    assert chosen_runner(tmp_path, 5, None) == LocalRunner(5)
    assert chosen_runner(tmp_path, None, "local:2") == ClusterRunner("local:2", tmp_path)
    with pytest.raises(UserError, match="--workers"):
        chosen_runner(tmp_path, 5, "local:2")
    for wrong in ("local:", "local:0", "local:two", "local:-1"):
        with pytest.raises(UserError, match="local:N"):
            chosen_runner(tmp_path, None, wrong)
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "ccp_dml.plans.cluster")
    with pytest.raises(UserError, match=r"pip install 'ccp-dml\[cluster\]'"):
        chosen_runner(tmp_path, None, "local:2")


def test_a_folder_in_use_is_refused(tmp_path):
    (tmp_path / "out").mkdir()
    with (
        lock(tmp_path / "out" / ".lock", "busy"),
        pytest.raises(UserError, match="in use by another `ccp study`"),
        alone_with_plan("study", tmp_path / "out", []),
    ):
        pytest.fail("trained")


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file is a file; give --out another folder"):
        refuse_mistakes(tmp_path / "file" / "out", [], [], [])


def test_who_interrupts_hears_how_to_go_on(tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt), alone_with_plan("study", tmp_path / "out", []):
        raise KeyboardInterrupt
    assert "the same command continues it" in capsys.readouterr().err
