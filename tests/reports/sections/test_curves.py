"""Problems and charts of a run, from rows as training writes them."""

from dataclasses import replace
from pathlib import Path

import pytest

from ccp_dml.records.run_folder import RunFolder
from ccp_dml.reports.sections.curves import mean_curve, projections


def begun(problem, step, radius):
    return {"problem": problem, "step": step, "covering_radius": radius}


def row(step, problem, score, **more):
    return {"step": step, "problem": problem, "map_at_r": score, **more}


PACED = [
    row(100, 1, 0.1, problems_begun=[begun(1, 0, None)]),
    row(200, 4, 0.2, staleness=0.3, problems_begun=[begun(2, 100, 0.9), begun(3, 130, 0.8), begun(4, 170, 0.7)]),
    row(300, 4, 0.3, staleness=0.5, pull_norm=0.01, problems_begun=[]),
    row(350, 5, 0.25, staleness=0.1, problems_begun=[begun(5, 310, 0.6)]),
]


def run_of(metrics) -> RunFolder:
    return RunFolder(Path("run"), config={}, environment={}, metrics=metrics, result=None, gallery=None)


def test_a_problem_that_no_evaluation_saw_has_its_line_too():
    rows = run_of(PACED).problem_rows()
    assert [(each["problem"], each["steps"], each["evaluations"]) for each in rows] == [
        (1, 100, 1),
        (2, 30, 0),
        (3, 40, 0),
        (4, 140, 2),
        (5, 40, 1),
    ]
    assert [each["map_at_r"] for each in rows] == [0.1, None, None, 0.3, 0.25]
    assert [each["covering_radius"] for each in rows] == [None, 0.9, 0.8, 0.7, 0.6]
    assert [each["staleness"] for each in rows] == [None, None, None, 0.5, 0.1]


def test_a_run_that_logged_no_starts_has_problems_that_end_with_evaluations():
    metrics = [row(50, 1, 0.1), row(100, 1, 0.2), row(150, 2, 0.3, covering_radius=0.5)]
    assert run_of(metrics).problem_starts() == [begun(1, 0, None), begun(2, 100, 0.5)]
    assert [each["steps"] for each in run_of(metrics).problem_rows()] == [100, 50]
    assert run_of([]).problem_rows() == []


def test_one_picture_shows_staleness_switches_and_score():
    section = projections([run_of(PACED)])
    pace = section.content["charts"][0]
    assert pace.chart.title == "Pace"
    assert [curve.label for curve in pace.chart.curves] == ["validation MAP@R", "staleness of proxies"]
    assert [mark.x for mark in pace.chart.marks] == [100, 130, 170, 310]
    assert dict(pace.chart.curves[1].points) == pytest.approx({200: 0.3, 300: 0.5, 350: 0.1})


def test_a_baseline_has_no_section_of_projections():
    assert projections([run_of([row(50, 1, 0.1), row(100, 1, 0.2)])]) is None


def test_a_mean_curve_has_the_steps_that_all_runs_reached_and_their_start():
    long = replace(run_of([row(50, 1, 0.2), row(100, 1, 0.3), row(150, 1, 0.4)]), start=row(0, 1, 0.1))
    short = replace(run_of([row(50, 1, 0.4), row(100, 1, 0.5)]), start=row(0, 1, 0.1))
    assert mean_curve([long, short]) == [(0, pytest.approx(10)), (50, pytest.approx(30)), (100, pytest.approx(40))]
    assert mean_curve([long, run_of([])]) == []
