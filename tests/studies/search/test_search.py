"""The search as a study: its plan, its ranges, and which searches share trials."""

from dataclasses import replace

import numpy as np
import optuna
import pytest
from support.small_studies import planned

from ccp_dml.errors import UserError
from ccp_dml.studies.request import StudyRequest
from ccp_dml.studies.search.search import SearchOptions, plan, search_space, train, trained_with, trial_run, trial_store


def test_the_first_trial_of_a_search_is_checked_and_none_is_known(ask, tmp_path):
    plan = planned(ask("search", "study.trials=5"), tmp_path)
    assert list(plan.runs) == []
    assert (plan.done, plan.total) == (0, 5)
    assert plan.rehearsed[0].config.ccp.pool_per_class == 16
    assert list(tmp_path.glob("*.db")) == []  # looking makes no file


def test_the_papers_ranges(tmp_path):
    request = StudyRequest("search", "cub", ("c2",), True, ())
    options = request.options(SearchOptions)
    assert (options.weight, options.proxies_per_class) == ((1e-12, 1e2), (1, 16))
    assert search_space(request).first == {"weight": 2e-4, "proxies": 8}
    assert planned(request, tmp_path).rehearsed[0].config.ccp.pool_per_class == 16


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("study.weight=[1, 1]", r"weight must be \[lowest, highest\]"),
        ("study.weight=[1e-3]", r"study\.weight = \[0\.001\] .*: it must be a list of 2 numbers\."),
        ("study.trials=0", r"study\.trials = 0 .*at least 1"),
    ],
)
def test_wrong_ranges_are_one_sentence(setting, message, ask, tmp_path):
    with pytest.raises(UserError, match=message):
        planned(ask("search", setting), tmp_path)


def test_a_search_has_one_loss(ask, tmp_path):
    with pytest.raises(UserError, match="one loss at a time"):
        planned(ask("search", losses=("c2", "ms")), tmp_path)


def test_runs_of_a_search_are_supervised_and_searches_of_other_settings_stay_apart(ask, tmp_path):
    request = ask("search")
    run = trial_run(request, tmp_path, 3, {"weight": 1e-9, "proxies": 5})
    assert run.is_supervised
    assert (run.config.ccp.weight, run.config.ccp.proxies_per_class) == (1e-9, 5)
    assert run.folder == tmp_path / "trials" / "0003"
    assert search_space(request).warm_up_steps == 4
    other = replace(request, settings=(*request.settings, "optim.lr=0.5"))
    elsewhere = replace(request, settings=(*request.settings, "data.path=/mnt/x.npz", "run.device=cpu"))
    names = [trial_store(one, tmp_path).name for one in (request, other, elsewhere)]
    assert names[0] == names[2] != names[1]


def test_what_all_trials_share_is_known_but_for_what_changes_no_result(ask):
    shared = trained_with(ask("search", "ccp.until=stale", "run.device=cpu", "protocol.folds=3"))
    assert (shared["ccp.pool_per_class"], shared["ccp.patience"], shared["ccp.until"]) == (16, 1, "stale")
    assert (shared["train.max_steps"], shared["protocol.folds"]) == (12, 3)
    assert not {"data.path", "run.device", "loss.name", "ccp.mode"} & shared.keys()


def test_only_searches_of_the_same_data_join(ask, features, tmp_path):
    request = ask("search", storage=str(tmp_path / "shared.log"))
    before = trial_store(request, tmp_path / "study").name
    moved = features.rename(tmp_path / "moved.npz")
    elsewhere = replace(request, settings=tuple(text.replace(str(features), str(moved)) for text in request.settings))
    assert trial_store(elsewhere, tmp_path / "study").name == before
    arrays = dict(np.load(moved))
    np.savez(moved, **{**arrays, "features": arrays["features"] + 1})
    assert trial_store(elsewhere, tmp_path / "study").name != before


def test_a_plan_counts_the_trials_of_all_machines_and_makes_no_file(ask, tmp_path):
    request = ask("search", "study.trials=3", storage=str(tmp_path / "shared.log"))
    assert plan(request, tmp_path / "here").done == 0
    assert not (tmp_path / "shared.log").exists()
    there = trial_store(request, tmp_path / "there")
    trial = there.open().ask({"weight": optuna.distributions.FloatDistribution(1e-12, 1e2, log=True)})
    there.open().tell(trial, 0.5)
    found = plan(request, tmp_path / "here")
    assert (found.done, found.total, list(found.runs)) == (1, 3, [])
    assert found.note.startswith("2 of 3 trials are left")
    assert [run.name for run in found.to_come] == ["trials/0001", "trials/0002"]
    there.open().ask()  # which runs there
    assert [run.name for run in plan(request, tmp_path / "here").to_come] == ["trials/0002"]


def test_a_complete_trial_whose_folder_is_gone_is_not_planned_again(ask, tmp_path):
    request = ask("search", "study.trials=2")
    trials = trial_store(request, tmp_path).open()
    for _ in range(2):
        trials.tell(trials.ask(search_space(request).distributions), 0.5)
    kept = tmp_path / "trials" / "0001"
    kept.mkdir(parents=True)
    for name in ("config.toml", "result.json"):
        (kept / name).touch()
    found = plan(request, tmp_path)
    assert ([one.run.folder for one in found.runs], found.done, list(found.to_come)) == ([kept], 2, [])
    assert train(request, tmp_path, found, None, None) == []


def test_a_search_without_trials_left_asks_nobody_to_train(ask, tmp_path):
    request = ask("search", "study.trials=1", storage=str(tmp_path / "shared.log"))
    there = trial_store(request, tmp_path / "there").open()
    there.tell(there.ask(), 0.5)
    nobody = None  # as a cluster that has gone
    assert train(request, tmp_path, plan(request, tmp_path), nobody, nobody) == []
