"""Figures, tables and paragraphs equal the results of the runs that they are made of."""

import json
from statistics import mean

import pytest

from ccp_dml.studies import STUDIES
from ccp_dml.studies.alternating import steps_per_problem
from ccp_dml.studies.study import finished_runs

pytestmark = pytest.mark.usefixtures("in_this_process")


def carried_out(request, folder):
    study = STUDIES[request.study]
    plan = study.plan(request, folder)
    assert study.train(request, folder, plan, 1, None) == []
    return plan, study.conclude(request, folder, study.plan(request, folder))


def result(plan, **coordinates):
    """The results of the runs at some coordinates, as their folders have them."""
    return [
        json.loads((one.run.folder / "result.json").read_text())
        for one in plan.runs
        if coordinates.items() <= one.coordinates.items()
    ]


def test_alternating(ask, tmp_path):
    request = ask("alternating", "study.repeats=2", "train.max_steps=24")
    plan, found = carried_out(request, tmp_path)
    assert [row["method"] for row in found.rows] == ["c2", "c2-proxy", "c2-ccp"] * 2
    for row, one in zip(found.rows, plan.runs, strict=True):
        recorded = json.loads((one.run.folder / "result.json").read_text())
        assert row["test_map_at_r"] == recorded["test"]["map_at_r"]
        assert row["validation_precision_at_1"] == recorded["validation"]["precision_at_1"]
        assert tmp_path / row["folder"] == one.run.folder
    figures = {figure.name: figure for figure in found.figures}
    scores = [100 * mean(one["test"]["map_at_r"] for one in result(plan, method=method)) for method in ("c2", "c2-ccp")]
    groups = figures["scores"].panels[0].groups
    assert [groups[0].values[0], groups[2].values[0]] == pytest.approx(scores)
    curve = figures["curves"].panels[0].lines[2]
    assert list(curve.x) == [4, 8, 12, 16, 20, 24]
    logs = [(run.folder.metrics, steps_per_problem(run)) for run in finished_runs(plan)[2::3]]
    assert curve.y == pytest.approx([100 * mean(rows[i]["map_at_r"] for rows, _ in logs) for i in range(6)])
    lengths = [length for _, lengths in logs for length in lengths]
    for rows, of_run in logs:  # a problem's steps: four for each of its evaluations
        ended = [row["problem"] for row in rows if row["problem"] < rows[-1]["problem"]]
        assert of_run == [4 * ended.count(problem) for problem in sorted(set(ended))]
    assert lengths
    assert figures["problems"].panels[0].groups[0].values == lengths
    assert f"CCP {scores[1]:.1f} ±" in found.paragraph
    assert "n = 2" in found.paragraph
    assert found.notes == []


def test_pool(ask, tmp_path):
    request = ask("pool", "study.proxies_per_class=[1, 3]", "study.pool_per_class=[1, 4]")
    plan, found = carried_out(request, tmp_path)
    validation, test = found.figures[0].panels
    for row, proxies in enumerate((1, 3)):
        for column, pool in enumerate((1, 4)):
            (one,) = result(plan, proxies=proxies, pool=pool)
            assert validation.values[row][column] == pytest.approx(100 * one["validation"]["map_at_r"])
            assert test.values[row][column] == pytest.approx(100 * one["test"]["map_at_r"])
    best = max(found.rows, key=lambda row: row["validation_map_at_r"])
    assert f"P = {best['proxies']} and b = {best['pool']}" in found.paragraph
    assert "noise is unknown" in found.paragraph


def test_batch_size_and_a_study_that_is_not_finished(ask, tmp_path):
    request = ask("batch-size", "study.batch_sizes=[8, 12]")
    study = STUDIES["batch-size"]
    plan = study.plan(request, tmp_path)
    assert study.conclude(request, tmp_path, plan) is None
    first = [one.run for one in plan.runs if one.coordinates != plan.runs[-1].coordinates]
    from ccp_dml.plans import runner

    runner.execute(first)
    found = study.conclude(request, tmp_path, plan)
    assert found.notes == ["1 of 4 runs are not finished; the same command goes on."]
    without, with_ccp = found.figures[0].panels[0].lines
    assert (without.x, with_ccp.x) == ([8, 12], [8])
    assert without.y == pytest.approx([100 * one["test"]["map_at_r"] for one in result(plan, method="c2")])
    gain = 100 * (found.rows[1]["test_map_at_r"] - found.rows[0]["test_map_at_r"])
    assert f"at 8, {gain:+.2f} points (one pair of runs: noise unknown)" in found.paragraph
