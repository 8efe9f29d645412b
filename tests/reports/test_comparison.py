import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from ccp_dml.records.run_folder import RunFolder, read_runs
from ccp_dml.reports.comparison import compare, different_data, differing_settings, group_by_method, verdicts, winner
from ccp_dml.reports.sections.overview import comparison
from ccp_dml.reports.words import percent


@pytest.fixture
def scored(write_run: Callable[..., Path], tmp_path: Path) -> Callable[..., RunFolder]:
    def make(name: str, map_at_r: float | None) -> RunFolder:
        folder = write_run(tmp_path / name)
        test = {"map_at_r": map_at_r, "precision_at_1": 0.5, "r_precision": 0.4, "queries": 10}
        (folder / "result.json").write_text(json.dumps({"test": test, "best_step": 50}))
        return RunFolder.read(folder)

    return make


def test_gains_are_over_the_first_run_in_points_and_relative(scored: Callable[..., RunFolder]) -> None:
    first, second, third = (
        row.scores["map_at_r"] for row in compare([scored("a", 0.4), scored("b", 0.5), scored("c", 0.3)])
    )
    assert (first.gain, first.gain_text()) == (None, "")
    assert second.gain == pytest.approx(0.1)
    assert second.relative_gain == pytest.approx(0.25)
    assert second.gain_text() == "+10.0 points (+25.0 %)"
    assert third.gain_text() == "-10.0 points (-25.0 %)"
    assert [row.is_best for row in (first, second, third)] == [False, True, False]


def test_a_missing_score_is_neither_best_nor_compared(scored: Callable[..., RunFolder]) -> None:
    rows = [row.scores["map_at_r"] for row in compare([scored("a", None), scored("b", 0.5)])]
    assert [(row.is_best, row.gain) for row in rows] == [(False, None), (False, None)]
    assert percent(rows[0].value) == "–"  # noqa: RUF001


def test_a_first_score_of_zero_has_no_relative_gain(scored: Callable[..., RunFolder]) -> None:
    _, second = (row.scores["map_at_r"] for row in compare([scored("a", 0.0), scored("b", 0.5)]))
    assert second.gain_text() == "+50.0 points"


def test_runs_selected_on_test_classes_are_marked(write_run: Callable[..., Path], tmp_path: Path) -> None:
    honest, other = write_run(tmp_path / "honest"), write_run(tmp_path / "other")
    (other / "config.toml").write_text(tomli_w.dumps({"protocol": {"select_on": "test"}}))
    assert [row.is_marked for row in compare(read_runs([honest, other]))] == [False, True]


def test_only_settings_that_differ_are_listed(two_runs: list[Path]) -> None:
    assert differing_settings(read_runs(two_runs)) == {"ccp.mode": ["off", "alternating"]}


@pytest.mark.parametrize(("pair_weight", "is_listed"), [(0.1, False), ("balanced", True)])
def test_a_setting_that_no_run_reads_is_not_listed(two_runs: list[Path], pair_weight: Any, is_listed: bool) -> None:
    for run, balance in zip(two_runs, (3.0, 1.0), strict=True):
        ccp = {"mode": "one-problem", "pair_weight": pair_weight, "balance": balance}
        (run / "config.toml").write_text(tomli_w.dumps({"loss": {"name": "c2"}, "ccp": ccp}))
    assert differing_settings(read_runs(two_runs)) == ({"ccp.balance": [3.0, 1.0]} if is_listed else {})


def test_a_setting_that_a_run_lacks_differs(two_runs: list[Path]) -> None:
    (two_runs[1] / "config.toml").write_text((two_runs[0] / "config.toml").read_text() + "\n[extra]\nkey = 1\n")
    assert differing_settings(read_runs(two_runs)) == {"extra.key": [None, 1]}


@pytest.fixture
def folds(write_run: Callable[..., Path], tmp_path: Path) -> Callable[..., list[RunFolder]]:
    """Make runs of a method, one per fold and score."""

    def make(method: str, *scores: float, seed: int = 0) -> list[RunFolder]:
        runs = []
        for fold, score in enumerate(scores):
            folder = write_run(tmp_path / method / f"fold{fold}")
            config = {"loss": {"name": method}, "protocol": {"fold": fold}, "run": {"seed": seed, "device": f"d{fold}"}}
            (folder / "config.toml").write_text(tomli_w.dumps(config))
            test = {"map_at_r": score, "precision_at_1": 0.5, "r_precision": 0.4, "queries": 10}
            (folder / "result.json").write_text(json.dumps({"test": test, "best_step": 50}))
            runs.append(RunFolder.read(folder))
        return runs

    return make


def test_runs_of_a_method_are_compared_in_pairs(folds: Callable[..., list[RunFolder]]) -> None:
    plain, better = folds("c2", 0.30, 0.40, 0.50), folds("ms", 0.32, 0.425, 0.515)
    assert [method.label for method in group_by_method([*plain, *better])] == [
        "c2/fold0 and 2 more",
        "ms/fold0 and 2 more",
    ]
    (verdict,) = verdicts([*plain, *better])  # gaps 2.0, 2.5, 1.5: mean 2, sd 0.5, t(2) = 4.303
    assert verdict == (
        "ms/fold0 and 2 more against c2/fold0 and 2 more, MAP@R: +2.00 points, 95 % interval +0.76 to +3.24 (Student's "
        "t over 3 pairs): better."
    )
    rows = compare([*plain, *better])
    assert [row.scores["map_at_r"].is_bold for row in rows] == [False] * 5 + [True]
    assert not any(row.scores["precision_at_1"].is_bold for row in rows)


def test_gains_are_over_the_run_of_equal_fold_and_seed(folds: Callable[..., list[RunFolder]]) -> None:
    """The first run is of the hardest fold: over it, every other fold would seem to gain."""
    rows = compare([*folds("c2", 0.30, 0.40), *folds("ms", 0.31, 0.38, 0.6)])
    gains = [row.scores["map_at_r"].gain for row in rows]
    assert gains == [None, None, pytest.approx(0.01), pytest.approx(-0.02), None]
    assert rows[3].scores["map_at_r"].relative_gain == pytest.approx(-0.05)


def test_the_luckiest_of_several_folds_is_no_headline(folds: Callable[..., list[RunFolder]]) -> None:
    plain, better = folds("c2", 0.30, 0.40), folds("ms", 0.31, 0.38)
    assert comparison([*plain, *better]).content["best"] is None
    assert comparison([plain[0], better[0]]).content["best"].label.startswith("ms")


@pytest.mark.parametrize(("later", "together"), [({"balance": 3.0}, True), ({"balance": 1.0}, False)])
def test_a_run_of_an_earlier_version_belongs_to_those_that_do_what_it_did(
    folds: Callable[..., list[RunFolder]], later: dict[str, float], together: bool
) -> None:
    runs = folds("c2", 0.3, 0.4)
    for run, added in zip(runs, ({}, later), strict=True):
        ccp = {"mode": "alternating", "pair_weight": "balanced", **added}
        config = {"loss": {"name": "c2"}, "ccp": ccp, "run": {"seed": 0}}
        (run.path / "config.toml").write_text(tomli_w.dumps(config))
    groups = group_by_method([RunFolder.read(run.path) for run in runs])
    assert len(groups) == (1 if together else 2)


def test_a_difference_that_chance_explains_is_none(folds: Callable[..., list[RunFolder]]) -> None:
    runs = [*folds("c2", 0.30, 0.40, 0.50), *folds("ms", 0.34, 0.38, 0.52)]
    assert verdicts(runs)[0].endswith(": no clear difference.")
    assert not any(row.scores["map_at_r"].is_bold for row in compare(runs))


def test_only_who_is_clearly_above_every_other_method_wins(folds: Callable[..., list[RunFolder]]) -> None:
    """Both methods are clearly above the first, and level with one another."""
    plain, level = folds("c2", 0.30, 0.40, 0.50), folds("c1", 0.42, 0.499, 0.61)
    best, ahead = folds("ms", 0.41, 0.511, 0.612), folds("triplet", 0.51, 0.611, 0.712)
    runs = [*plain, *level, *best]
    assert [verdict.endswith(": better.") for verdict in verdicts(runs)] == [True, True]
    assert winner(runs).startswith(
        "No clear winner in MAP@R. ms/fold0 and 2 more against c1/fold0 and 2 more, the second: +0.13 points"
    )
    assert comparison(runs).content["verdicts"][0] == winner(runs)
    assert not any(row.scores["map_at_r"].is_bold for row in compare(runs))
    assert winner([*plain, *level, *ahead]).startswith("triplet/fold0 and 2 more wins in MAP@R. ")
    assert [row.scores["map_at_r"].is_bold for row in compare([*plain, *level, *ahead])] == [False] * 8 + [True]
    assert winner([*plain, *level]) is None, "the verdict says it"
    assert winner([*plain, *level[1:], *ahead]) is None, "a method lacks a fold that others have"


def test_the_first_method_can_win_too(folds: Callable[..., list[RunFolder]]) -> None:
    rows = compare([*folds("c2", 0.32, 0.425, 0.515), *folds("ms", 0.30, 0.40, 0.50)])
    assert [row.scores["map_at_r"].is_bold for row in rows] == [False, False, True, False, False, False]


def test_runs_that_the_test_classes_chose_are_not_compared_with_others(
    folds: Callable[..., list[RunFolder]],
) -> None:
    honest, chosen = folds("c2", 0.30, 0.40, 0.50), folds("ms", 0.40, 0.50, 0.601)
    chosen = [
        replace(run, config={**run.config, "protocol": {**run.config["protocol"], "select_on": "test"}})
        for run in chosen
    ]
    assert verdicts([*honest, *chosen])[0].endswith(
        "MAP@R: only one of the two was selected on the test classes themselves, so that nothing can be compared in "
        "pairs."
    )
    scores = [row.scores["map_at_r"] for row in compare([*honest, *chosen])]
    assert not any(score.is_bold or score.gain is not None for score in scores)
    assert comparison([honest[0], chosen[0]]).content["best"] is None
    assert comparison([honest[0], chosen[0]]).content["tested_on"] == "the test half"
    assert comparison(chosen).content["tested_on"] == "test classes"


def test_runs_of_other_seeds_are_no_pairs(folds: Callable[..., list[RunFolder]]) -> None:
    runs = [*folds("c2", 0.30), *folds("ms", 0.34, seed=1)]
    assert verdicts(runs)[0].endswith("no runs of equal fold and seed, so that nothing can be compared in pairs.")
    assert verdicts(runs[:1]) == []


def on(run: RunFolder, digest: str | None = None, **data: Any) -> RunFolder:
    """The run on other data: with other settings, another digest, or both."""
    settings = {"name": "features", "path": "x.npz", **data}
    return replace(run, config={**run.config, "data": settings}, environment={} if digest is None else {"data": digest})


@pytest.mark.parametrize(
    ("first", "second", "described"),
    [
        (
            {"digest": "1", "path": "a/x.npz"},
            {"digest": "2", "path": "b/x.npz"},
            ["features (x.npz), data.path = a/x.npz", "features (x.npz), data.path = b/x.npz"],
        ),
        ({"digest": "1"}, {"digest": "2"}, [f"features (x.npz), with the digest {digest}" for digest in "12"]),
        ({"name": "a"}, {"name": "b"}, ["a (x.npz)", "b (x.npz)"]),
        (
            {"name": "folder", "path": None, "root": "a"},
            {"name": "folder", "path": None, "root": "b"},
            ["folder, data.root = a", "folder, data.root = b"],
        ),
        (
            {"test_share": 0.2},
            {},
            ["features (x.npz), data.test_share = 0.2", "features (x.npz), data.test_share = 0.5"],
        ),
    ],
)
def test_scores_on_different_data_are_not_compared(
    folds: Callable[..., list[RunFolder]], first: dict[str, Any], second: dict[str, Any], described: list[str]
) -> None:
    plain = [on(run, **first) for run in folds("c2", 0.3, 0.4, 0.5)]
    better = [on(run, **second) for run in folds("ms", 0.8, 0.9, 1.0)]
    assert different_data([*plain, *better]) == described
    assert verdicts([*plain, *better]) == [
        "ms/fold0 and 2 more against c2/fold0 and 2 more, MAP@R: tested on different data, so that nothing can be "
        "compared in pairs."
    ]
    scores = [row.scores["map_at_r"] for row in compare([*plain, *better])]
    assert [score.gain for score in scores] == [None] * 6
    assert [score.is_best for score in scores] == [False, False, True, False, False, False]
    assert not any(score.is_bold for score in scores)


def test_runs_of_a_method_on_different_data_are_not_one_method(folds: Callable[..., list[RunFolder]]) -> None:
    first, second = folds("c2", 0.3, 0.4)
    assert len(group_by_method([on(first, "1", path="a"), on(second, "2", path="b")])) == 2
    assert len(group_by_method([on(first, "1", path="a"), on(second, "1", path="b")])) == 1  # moved to another machine


def test_runs_that_began_with_other_weights_are_not_one_method(folds: Callable[..., list[RunFolder]]) -> None:
    """Of equal fold and seed, the one would else take the place of the other in silence."""

    def began(run: RunFolder, weights: str, digest: str | None = None) -> RunFolder:
        known = {} if digest is None else {"frozen_backbone": digest}
        return replace(run, config={**run.config, "model": {"weights": weights}}, environment=known)

    (run,), (other,) = folds("c2", 0.3), folds("c2-again", 0.4)
    other = replace(other, config=run.config)
    runs = [began(run, "here/a.safetensors"), began(other, "here/b.safetensors")]
    assert len(group_by_method(runs)) == 2
    assert "+10.00 points in one pair" in verdicts(runs)[0]
    assert len(group_by_method([began(run, "here/a.safetensors"), began(other, "there/a.safetensors")])) == 1
    assert len(group_by_method([began(run, "a", "1"), began(other, "a", "2")])) == 2, "the file was replaced"
    assert len(group_by_method([began(run, "a", "1"), began(other, "b", "1")])) == 1, "the file was renamed"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"digest": "1"}, {"digest": "1", "path": "elsewhere/x.npz"}),
        ({"digest": "1"}, {"digest": "2", "augment": "none"}),  # the digest is of the training half, too
        ({"digest": "1"}, {}),
        ({}, {"test_share": 0.5}),
    ],
)
def test_the_same_test_half_is_known_by_its_digest_or_its_settings(
    folds: Callable[..., list[RunFolder]], first: dict[str, Any], second: dict[str, Any]
) -> None:
    runs = [*(on(run, **first) for run in folds("c2", 0.3, 0.4)), *(on(run, **second) for run in folds("ms", 0.4, 0.5))]
    assert different_data(runs) == []
    assert "Student's t over 2 pairs" in verdicts(runs)[0]
