"""The search: it finds an optimum, prunes, goes on after an interruption, and shares its trials."""

import json
import math
from dataclasses import replace

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from ccp_dml.config.layers import resolve
from ccp_dml.errors import UserError
from ccp_dml.studies.search.outcome import conclude_search, fit_surface
from ccp_dml.studies.search.search import plan, search_space, trial_run, trial_store
from ccp_dml.studies.search.storage import TrialStore
from ccp_dml.studies.search.trials import SearchSpace, TrialRuns, trial_point

SPACE = SearchSpace((1e-12, 1e2), (1, 16), {"weight": 2e-4, "proxies": 8}, startup_trials=8, warm_up_steps=1, seed=0)


class MadeUpRun:
    """As much of a planned run as the trials look at; `score` is what its training would give."""

    def __init__(self, number, point, folder):
        self.name, self.folder, self.point = f"trials/{number:04}", folder / f"{number:04}", point

    @property
    def score(self):
        return hill(**self.point)


def hill(weight, proxies):
    """1 at lambda = 1e-6 and P = 12, and less everywhere else."""
    return math.exp(-(((math.log10(weight) + 6) / 3) ** 2) - ((proxies - 12) / 6) ** 2)


def searcher(study, folder, total, space=SPACE, owner=None):
    return TrialRuns(study, space, total, lambda number, point: MadeUpRun(number, point, folder), owner)


def in_memory():
    return optuna.create_study(direction="maximize")


def carry_out(trials, most=None):
    """Train what the search asks for: two evaluations each, the second at its full score."""
    for number, run in enumerate(trials.runs()):
        if number == most:
            return  # killed
        if not (trials.goes_on(run, 1, run.score / 2) and trials.goes_on(run, 2, run.score)):
            trials.stopped(run)
        else:
            trials.finished(run, {"validation": {"map_at_r": run.score}, "test": {"map_at_r": 1 - run.score}})


def points(study):
    return [(trial_point(trial), trial.state) for trial in study.trials]


@pytest.fixture(autouse=True)
def _quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


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


def test_a_trial_that_ended_just_before_the_kill_is_told_and_not_trained_again(tmp_path):
    study = in_memory()
    carry_out(searcher(study, tmp_path, 3), most=2)
    folder = tmp_path / "0002"
    folder.mkdir()
    (folder / "config.toml").write_text("")
    (folder / "metrics.jsonl").write_text('{"step": 1, "map_at_r": 0.1}\n{"step": 2, "map_at_r": 0.4}\n')
    (folder / "result.json").write_text(json.dumps({"validation": {"map_at_r": 0.4}}))
    assert list(searcher(study, tmp_path, 3).runs()) == []
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
    next(searcher(study, tmp_path, 12).runs())
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
    found = conclude_search(stores[1], SPACE, "features", "c2-ccp")
    assert found is None or any("another machine" in note for note in found.notes)


@pytest.mark.parametrize(
    "address",
    [
        "sqlite:////nowhere/at/all/x.db",
        "/nowhere/at/all/x.log",
        "nonsense://x",
        "postgresql://ann:s3cret@127.0.0.1:9/x",
    ],
)
def test_a_storage_that_cannot_be_reached_is_a_user_s_mistake(address, tmp_path):
    with pytest.raises(UserError, match=r"--storage .* cannot be used") as caught:
        TrialStore(tmp_path, address, "search").open()
    assert "s3cret" not in str(caught.value)


def test_the_outcome_equals_the_trials(tmp_path):
    store = TrialStore(tmp_path, None, "search")
    carry_out(searcher(store.open(), tmp_path / "trials", 12, replace(SPACE, startup_trials=4)))
    study = store.open()
    found = conclude_search(store, SPACE, "features", "c2-ccp")
    assert [row["validation_map_at_r"] for row in found.rows] == [trial.value for trial in study.trials]
    assert {row["state"] for row in found.rows} == {"complete", "pruned"}
    assert not [name for row in found.rows for name in row if "test" in name]  # nobody is to choose by it
    figures = {figure.name: figure for figure in found.figures}
    kinds = {group.label: group for group in figures["map"].panels[0].points}
    assert len(kinds["complete"].x) + len(kinds["pruned"].x) + 1 == 12
    assert (kinds["best"].x[0], kinds["best"].y[0]) == (study.best_params["weight"], study.best_params["proxies"])
    shares = figures["importance"].panels[0].groups[0].values
    assert sum(shares) == pytest.approx(1.0)
    assert figures["history"].panels[0].lines[1].y[-1] == pytest.approx(100 * study.best_value)
    assert f"trial {study.best_trial.number} with lambda" in found.paragraph
    config = resolve(["features", "c2-ccp", str(tmp_path / "best.toml")]).config
    assert (config.ccp.weight, config.ccp.proxies_per_class) == (
        study.best_params["weight"],
        study.best_params["proxies"],
    )
    assert config.ccp.mode == "alternating"


def test_the_surface_passes_near_its_points_and_has_the_hill_in_its_place():
    tried = [(10.0**e, p) for e in range(-12, 3, 2) for p in (1, 6, 11, 16)]
    scores = [100 * hill(weight, proxies) for weight, proxies in tried]
    surface = fit_surface(tried, scores, (1e-12, 1e2), (1, 16))
    assert len(surface.values) == len(surface.proxies) == 16
    assert len(surface.values[0]) == len(surface.weights)
    top = max(max(row) for row in surface.values)
    row, column = next((r, c) for r, line in enumerate(surface.values) for c, value in enumerate(line) if value == top)
    assert surface.proxies[row] in (11, 12, 13)
    assert -7 < math.log10(surface.weights[column]) < -5
    assert top == pytest.approx(100, abs=5)
    assert fit_surface(tried[:3], scores[:3], (1e-12, 1e2), (1, 16)) is None


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


def test_a_search_whose_recipe_was_changed_is_refused(tmp_path):
    TrialStore(tmp_path, None, "before").open()
    with pytest.raises(UserError, match="holds a search with other settings"):
        TrialStore(tmp_path, None, "after").open()
    address = f"sqlite:///{tmp_path / 'shared.db'}"
    assert [TrialStore(tmp_path, address, name).open().study_name for name in ("one", "two")] == ["one", "two"]


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
