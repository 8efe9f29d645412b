"""What a search tells: rows, figures, importances and the recipe of its best trial."""

import math
from dataclasses import replace

import pytest
from support.made_up_trials import SPACE, carry_out, hill, searcher

from ccp_dml.config.layers import resolve
from ccp_dml.studies.search.outcome import conclude_search, fit_surface
from ccp_dml.studies.search.storage import TrialStore


def test_the_outcome_equals_the_trials(tmp_path):
    store = TrialStore(tmp_path, None, "search")
    carry_out(searcher(store.open(), tmp_path / "trials", 12, replace(SPACE, startup_trials=4)))
    study = store.open()
    found = conclude_search(store, SPACE, "features", "c2-ccp", {})
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
    assert "over trial 0, the point of the search nearest to the recipe's own values" in found.paragraph
    config = resolve(["features", "c2-ccp", str(tmp_path / "best.toml")]).config
    assert (config.ccp.weight, config.ccp.proxies_per_class) == (
        study.best_params["weight"],
        study.best_params["proxies"],
    )
    assert config.ccp.mode == "alternating"


def test_the_best_recipe_trains_the_point_as_it_was_found_and_names_what_else_was_set(tmp_path):
    store = TrialStore(tmp_path, None, "search")
    carry_out(searcher(store.open(), tmp_path / "trials", 2))
    trained_with = {
        "ccp.pool_per_class": 16,
        "ccp.patience": 1,
        "ccp.weight": 0.5,  # what the first trial has
        "train.max_steps": 800,
        "run.compile": True,
        "protocol.hold_out": "images",
    }
    conclude_search(store, SPACE, "features", "c2-ccp", trained_with)
    best = resolve(["features", "c2-ccp", str(tmp_path / "best.toml")]).config.ccp
    assert (best.pool_per_class, best.patience, best.weight) == (16, 1, store.open().best_params["weight"])
    note = (tmp_path / "best.toml").read_text().splitlines()[1]
    assert "--set train.max_steps=800 --set run.compile=true --set protocol.hold_out=images" in note


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
