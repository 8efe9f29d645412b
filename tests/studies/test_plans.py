"""What each study would train: nothing is trained here."""

import pytest

from ccp_dml.config.layers import resolve
from ccp_dml.config.recipes import shipped_recipes
from ccp_dml.errors import UserError
from ccp_dml.proxies import pool_size
from ccp_dml.studies import STUDIES


def planned(request, folder):
    return STUDIES[request.study].plan(request, folder)


def test_alternating_trains_every_variant_for_equally_many_steps(ask, tmp_path):
    plan = planned(ask("alternating", "study.repeats=2", losses=("c2", "ms")), tmp_path)
    methods = [one.coordinates["method"] for one in plan.runs]
    assert methods == ["c2", "c2-proxy", "c2-ccp", "ms", "ms-proxy", "ms-ccp"] * 2
    assert [one.run.config.ccp.mode for one in plan.runs][:3] == ["off", "one-problem", "alternating"]
    assert [one.run.config.run.seed for one in plan.runs] == [0] * 6 + [1] * 6  # pairs share their seeds
    assert {one.run.steps for one in plan.runs} == {12}
    assert {one.run.config.train.patience for one in plan.runs} == {1_000_000}
    assert plan.runs[-1].run.folder == tmp_path / "ms-ccp" / "repeat1"


def test_pool_is_a_grid_of_both_values(ask, tmp_path):
    plan = planned(ask("pool", "study.proxies_per_class=[2, 4]", "study.pool_per_class=[1, 3, 9]"), tmp_path)
    cells = [(one.run.config.ccp.proxies_per_class, one.run.config.ccp.pool_per_class) for one in plan.runs]
    assert cells == [(2, 1), (2, 3), (2, 9), (4, 1), (4, 3), (4, 9)]
    assert [(one.coordinates["proxies"], one.coordinates["pool"]) for one in plan.runs] == cells
    assert [pool_size(b, p) for p, b in cells] == [2, 3, 9, 4, 12, 9]  # what the figure's caption says (D9)
    assert len({one.run.folder for one in plan.runs}) == 6


def test_batch_size_varies_the_classes_and_keeps_the_images_of_a_class(ask, tmp_path):
    plan = planned(ask("batch-size", "study.batch_sizes=[16, 128]"), tmp_path)
    shapes = [(one.run.config.train.classes_per_batch, one.run.config.train.images_per_class) for one in plan.runs]
    assert shapes == [(4, 4), (4, 4), (32, 4), (32, 4)]
    assert [one.coordinates["method"] for one in plan.runs] == ["c2", "c2-ccp"] * 2


def test_the_first_trial_of_a_search_is_checked_and_none_is_known(ask, tmp_path):
    plan = planned(ask("search", "study.trials=5"), tmp_path)
    assert list(plan.runs) == []
    assert (plan.done, plan.total) == (0, 5)
    assert plan.rehearsed[0].config.ccp.pool_per_class == 16
    assert list(tmp_path.glob("*.db")) == []  # looking makes no file


@pytest.mark.parametrize("study", ["alternating", "pool", "batch-size", "search"])
def test_every_study_has_the_papers_settings_as_a_recipe(study, ask, tmp_path):
    assert {f"study-{study}", f"study-{study}-full"} <= set(shipped_recipes("studies"))
    request = ask(study, is_full=True)
    planned(request, tmp_path)
    config = resolve(["cub", "c2-ccp", f"study-{study}-full"]).config
    assert (config.protocol.folds, config.protocol.fold) == (3, 0)  # two thirds train, one validates
    assert config.ccp.patience == 3
    assert config.train.max_steps == (10_000 if study == "alternating" else None)


def test_the_papers_ranges(tmp_path):
    from ccp_dml.studies.batch_size import BatchSizeOptions
    from ccp_dml.studies.request import StudyRequest
    from ccp_dml.studies.search.search import SearchOptions, search_space

    full = StudyRequest("batch-size", "cub", ("c2",), True, ())
    assert full.options(BatchSizeOptions).batch_sizes == (16, 32, 64, 128)
    search = StudyRequest("search", "cub", ("c2",), True, ())
    options = search.options(SearchOptions)
    assert (options.weight, options.proxies_per_class) == ((1e-12, 1e2), (1, 16))
    assert search_space(search).first == {"weight": 2e-4, "proxies": 8}
    assert planned(search, tmp_path).rehearsed[0].config.ccp.pool_per_class == 16


@pytest.mark.parametrize(
    ("study", "settings", "message"),
    [
        ("pool", ("study.pool=[1]",), r"'study\.pool' \(--set study\.pool\); did you mean 'study\.pool_per_class'"),
        ("pool", ("study.pool_per_class=[0]",), r"study\.pool_per_class = \[0\].*greater than 0"),
        ("pool", ("study.pool_per_class=[]",), "at least 1 item"),
        ("pool", ("study.trials=3",), "'study.trials'"),
        ("batch-size", ("study.batch_sizes=[18]",), "18 does not hold .* multiples of 4"),
        ("batch-size", ("study.batch_sizes=[4]",), "at least two whole classes"),
        ("search", ("study.weight=[1, 1]",), r"weight must be \[lowest, highest\]"),
        ("search", ("study.trials=0",), r"study\.trials = 0 .*greater than or equal to 1"),
    ],
)
def test_wrong_values_of_a_study_are_one_sentence(study, settings, message, ask, tmp_path):
    with pytest.raises(UserError, match=message):
        planned(ask(study, *settings), tmp_path)


def test_a_search_has_one_loss(ask, tmp_path):
    with pytest.raises(UserError, match="one loss at a time"):
        planned(ask("search", losses=("c2", "ms")), tmp_path)


def test_a_training_knows_nothing_of_studies():
    assert resolve(["features", "c2-ccp", "study-pool"]).config.train.max_steps == 800
    with pytest.raises(UserError, match=r"Unknown key 'study\.repeats'"):
        resolve(["features", "c2"], ["study.repeats=3"])
