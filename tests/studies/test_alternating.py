"""A loss alone, with one problem, and with CCP: what is trained, and what is told of it."""

import json
from statistics import mean

import pytest
from support.small_studies import carry_out, concluded, planned, results

from ccp_dml.studies.alternating import steps_per_problem
from ccp_dml.studies.study import finished_runs


def test_alternating_trains_every_variant_for_equally_many_steps(ask, tmp_path):
    plan = planned(ask("alternating", "study.repeats=2", losses=("c2", "ms")), tmp_path)
    methods = [one.coordinates["method"] for one in plan.runs]
    assert methods == ["c2", "c2-proxy", "c2-ccp", "ms", "ms-proxy", "ms-ccp"] * 2
    assert [one.run.config.ccp.mode for one in plan.runs][:3] == ["off", "one-problem", "alternating"]
    assert [one.run.config.run.seed for one in plan.runs] == [0] * 6 + [1] * 6  # pairs share their seeds
    assert {one.run.steps for one in plan.runs} == {12}
    assert {one.run.config.train.patience for one in plan.runs} == {1_000_000}
    assert plan.runs[-1].run.folder == tmp_path / "ms-ccp" / "repeat1"


@pytest.mark.usefixtures("in_this_process")
def test_figures_and_paragraph_equal_the_results(ask, tmp_path):
    request = ask("alternating", "study.repeats=2", "train.max_steps=24")
    plan = planned(request, tmp_path)
    carry_out(request, tmp_path)
    found = concluded(request, tmp_path)
    assert [row["method"] for row in found.rows] == ["c2", "c2-proxy", "c2-ccp"] * 2
    for row, one in zip(found.rows, plan.runs, strict=True):
        recorded = json.loads((one.run.folder / "result.json").read_text())
        assert row["test_map_at_r"] == recorded["test"]["map_at_r"]
        assert row["validation_precision_at_1"] == recorded["validation"]["precision_at_1"]
        assert tmp_path / row["folder"] == one.run.folder
    figures = {figure.name: figure for figure in found.figures}
    scores = [
        100 * mean(one["test"]["map_at_r"] for one in results(plan, method=method)) for method in ("c2", "c2-ccp")
    ]
    groups = figures["scores"].panels[0].groups
    assert [groups[0].values[0], groups[2].values[0]] == pytest.approx(scores)
    curve = figures["curves"].panels[0].lines[2]
    assert list(curve.x) == [0, 4, 8, 12, 16, 20, 24]  # from before the first step on
    logs = [(run.folder.metrics, steps_per_problem(run)) for run in finished_runs(plan)[2::3]]
    assert curve.y[1:] == pytest.approx([100 * mean(rows[i]["map_at_r"] for rows, _ in logs) for i in range(6)])
    lengths = [length for _, lengths in logs for length in lengths]
    for rows, of_run in logs:  # a problem's steps: four for each of its evaluations
        ended = [row["problem"] for row in rows if row["problem"] < rows[-1]["problem"]]
        assert of_run == [4 * ended.count(problem) for problem in sorted(set(ended))]
    assert lengths
    assert figures["problems"].panels[0].values == lengths
    assert f"CCP {scores[1]:.1f} ±" in found.paragraph
    assert "n = 2" in found.paragraph
    assert found.notes == []
