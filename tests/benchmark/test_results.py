"""results.csv: a line per run and score."""

import csv

from support.made_up_results import results

from ccp_dml.benchmark.results import select, write_results


def test_results_are_a_line_per_run_and_metric(tmp_path):
    write_results(tmp_path, results())
    with (tmp_path / "results.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 10
    assert (lines[0]["method"], lines[0]["fold"], float(lines[0]["value"])) == ("c2", "0", 0.2)
    assert lines[4]["fold"] == ""


def test_rows_are_chosen_by_all_of_their_fields():
    assert [row.fold for row in select(results(), method="c2", setting="separated")] == [0, 1, 2, 3]
    assert [row.dim for row in select(results(), fold=None)] == [512, 512]
    assert len(select(results())) == 10
