"""The trials: they find an optimum, are pruned, go on after an interruption, and are shared."""

import json
import math
from dataclasses import replace

from optuna.trial import TrialState
from support.made_up_trials import SPACE, carry_out, hill, in_memory, points, searcher

from ccp_dml.plans.runner import PlanWatcher
from ccp_dml.studies.search.outcome import conclude_search
from ccp_dml.studies.search.storage import TrialStore
from ccp_dml.studies.search.trials import trial_point


def test_it_finds_the_hill_by_validation_and_prunes_the_hopeless(tmp_path):
    study = in_memory()
    carry_out(searcher(study, tmp_path, 60))
    assert len(study.trials) == 60
    assert study.best_value > 0.9
    assert -7.5 < math.log10(study.best_params["weight"]) < -4.5
    assert study.best_params["proxies"] in range(10, 15)
    assert trial_point(study.trials[0]) == SPACE.first  # the recipe's own values are the first to beat
    pruned = [trial for trial in study.trials if trial.state == TrialState.PRUNED]
    assert len(pruned) > 5
    assert all(trial.value < study.best_value for trial in pruned)
    near = [trial for trial in study.trials[8:] if hill(**trial_point(trial)) > 0.5]
    assert len(near) / 52 > 0.35  # of random points, 18 % are


def test_the_same_seed_tries_the_same_points_and_another_does_not(tmp_path):
    studies = [in_memory() for _ in range(3)]
    for study, seed in zip(studies, (0, 0, 1), strict=True):
        carry_out(searcher(study, tmp_path, 14, replace(SPACE, seed=seed)))
    assert points(studies[0]) == points(studies[1])
    assert points(studies[0]) != points(studies[2])


def test_a_killed_search_goes_on_as_if_nothing_had_happened(tmp_path):
    whole, broken = in_memory(), in_memory()
    carry_out(searcher(whole, tmp_path, 14))
    carry_out(searcher(broken, tmp_path, 14), most=9)
    assert [trial.number for trial in broken.trials if trial.state == TrialState.RUNNING] == [9]
    carry_out(searcher(broken, tmp_path, 14))
    assert points(broken) == points(whole)
    carry_out(searcher(broken, tmp_path, 14))  # and once more: there is nothing left
    assert len(broken.trials) == 14


class Listener(PlanWatcher):
    """Notes what it is told of runs."""

    def __init__(self):
        self.heard = []

    def started(self, run):  # noqa: ARG002
        self.heard.append("started")

    def stopped(self, run):  # noqa: ARG002
        self.heard.append("stopped")

    def finished(self, run, result):  # noqa: ARG002
        self.heard.append("finished")


def test_a_trial_that_ended_just_before_the_kill_is_told_and_not_trained_again(tmp_path):
    study = in_memory()
    carry_out(searcher(study, tmp_path, 3), most=2)
    folder = tmp_path / "0002"
    folder.mkdir()
    (folder / "config.toml").write_text("")
    (folder / "metrics.jsonl").write_text('{"step": 1, "map_at_r": 0.1}\n{"step": 2, "map_at_r": 0.4}\n')
    (folder / "result.json").write_text(json.dumps({"validation": {"map_at_r": 0.4}}))
    trials = searcher(study, tmp_path, 3)
    trials.shown = Listener()
    assert list(trials.runs()) == []
    assert trials.shown.heard == ["started", "finished"]  # a bar is taken away only where one was shown
    assert study.trials[2].value == 0.4
    assert study.trials[2].intermediate_values == {1: 0.1, 2: 0.4}


def test_a_hopeless_trial_that_was_killed_is_given_up_at_once(tmp_path):
    study = in_memory()
    trials = searcher(study, tmp_path, 12)
    carry_out(trials, most=10)
    folder = tmp_path / "0010"
    folder.mkdir()
    (folder / "config.toml").write_text("")
    (folder / "checkpoint.pt").write_text("large")
    (folder / "metrics.jsonl").write_text('{"step": 1, "map_at_r": 0.0}\n{"step": 2, "map_at_r": 0.0}\n')
    trials = searcher(study, tmp_path, 12)
    trials.shown = Listener()
    next(trials.runs())
    assert trials.shown.heard == ["started", "stopped"]
    assert study.trials[10].state == TrialState.PRUNED
    assert not (folder / "checkpoint.pt").exists()


def test_failures_count_as_trials_and_say_why(tmp_path):
    study = in_memory()
    trials = searcher(study, tmp_path, 2)
    for run in trials.runs():
        trials.failed(run, "the loss is not finite")
    assert [trial.state for trial in study.trials] == [TrialState.FAIL] * 2
    assert study.trials[0].user_attrs["error"] == "the loss is not finite"


def test_two_machines_share_trials_and_leave_each_other_s_alone(tmp_path):
    address = str(tmp_path / "shared.log")
    stores = [TrialStore(tmp_path / name, address, "together") for name in ("left", "right")]
    assert stores[0].owner != stores[1].owner
    left, right = (searcher(store.open(), store.folder, 6, owner=store.owner) for store in stores)
    begun = next(left.runs())  # and never heard of again
    carry_out(right)
    study = stores[1].open()
    assert len(study.trials) == 6
    assert study.trials[0].state == TrialState.RUNNING
    assert [run.name for run in searcher(stores[0].open(), tmp_path, 6, owner=stores[0].owner).runs()] == [begun.name]
    found = conclude_search(stores[1], SPACE, "features", "c2-ccp", {})
    assert any("another machine" in note for note in found.notes)
