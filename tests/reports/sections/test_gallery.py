"""Queries with their neighbours, compared between runs, and confused classes."""

from dataclasses import replace
from pathlib import Path

import pytest

from ccp_dml.records.run_folder import read_runs
from ccp_dml.reports.page import sections_of_many
from ccp_dml.reports.sections.gallery import confusion, gallery, shared_gallery, shared_queries, with_gallery


def test_the_query_that_changed_most_comes_first(two_runs: list[Path]) -> None:
    [gallery] = [part for part in sections_of_many(read_runs(two_runs)) if part.id == "gallery"]
    changes = []
    for answers in gallery.content["rows"]:
        before, after = (answer["query"]["average_precision"] for answer in answers)
        changes.append(abs(after - before))
    assert changes == sorted(changes, reverse=True)
    assert changes[0] > changes[-1]


def test_a_query_is_compared_only_where_all_runs_show_it(two_runs: list[Path]) -> None:
    runs = read_runs(two_runs)
    shared = shared_queries(runs)
    names = [{query["name"] for query in run.gallery["queries"]} for run in runs]
    assert {name for _, _, name in shared} == names[0] & names[1]
    assert shared_queries(runs[:1]) == []
    assert shared_gallery(runs[:1]) is None
    left = gallery(runs[0], leave_out=shared).content["groups"]
    assert {query["name"] for group in left.values() for query in group} == names[0] - names[1]


def test_nothing_left_to_show_is_no_section(two_runs: list[Path]) -> None:
    (run, _) = read_runs(two_runs)
    everything = [(query["row"], query["class"], query["name"]) for query in run.gallery["queries"]]
    assert gallery(run, leave_out=everything) is None


def test_only_some_runs_have_galleries(two_runs: list[Path]) -> None:
    (two_runs[0] / "gallery.json").unlink()
    runs = read_runs(two_runs)
    assert [(place, run.name) for place, run in with_gallery(runs)] == [(1, "c2-ccp")]
    assert gallery(runs[0]) is None


@pytest.mark.parametrize(("matrix", "darkest"), [([[0.9, 0.1], [0.2, 0.8]], 0.2), ([[1.0, 0.0], [0.0, 1.0]], 1.0)])
def test_the_darkest_confusion_is_between_classes(
    two_runs: list[Path], matrix: list[list[float]], darkest: float
) -> None:
    run = read_runs(two_runs)[0]
    assert confusion(run) is None
    confused = {"pairs": [{}], "classes": ["a", "b"], "matrix": matrix}
    assert confusion(replace(run, confusion=confused)).content["darkest"] == darkest
    assert confusion(replace(run, confusion={**confused, "pairs": []})) is None
