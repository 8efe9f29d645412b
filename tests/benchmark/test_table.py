"""Results of a benchmark put into a table."""

from dataclasses import replace

import pytest
from support.made_up_results import EXAMPLE, built, results

from ccp_dml.benchmark.formats import as_latex, as_markdown, table_values
from ccp_dml.benchmark.table import baseline_of
from ccp_dml.records.benchmark_table import read_table, write_table
from ccp_dml.reports.words import MISSING


def test_a_cell_has_mean_spread_paper_and_gap():
    table = built()
    assert [column.group for column in table.columns] == ["128-D, separated", "512-D, concatenated"]
    separated, concatenated = table.rows[0].cells
    assert separated.score.mean == pytest.approx(0.215)
    assert separated.score.sd == pytest.approx(0.0129099, abs=1e-6)
    assert separated.score.n == 4
    assert separated.paper == pytest.approx(0.2101)
    assert separated.gap == pytest.approx(0.0049)
    assert concatenated.score.sd is None
    assert concatenated.paper == pytest.approx(0.2647)
    assert [cell.is_best for cell in table.rows[0].cells + table.rows[1].cells] == [False, False, True, True]


def test_a_method_without_results_keeps_its_row():
    table = built(methods=("c2", "c2-ccp", "ms"), notes=["ms: 0 of 4 runs are finished."])
    assert table.rows[2].cells == [None, None]
    assert "ms: 0 of 4 runs are finished." in as_markdown(table)
    assert f"| ms |{f' {MISSING} |' * 4}" in as_markdown(table)


def test_another_network_size_or_dimension_is_said():
    table = built(results(backbone="tf_efficientnet_lite0", image_size=112, dim=64))
    assert "Here tf_efficientnet_lite0 at 112 px, in the paper BN-Inception at 227 px." in table.notes
    assert "Separated: here 64-D, in the paper 128-D." in table.notes
    assert not any(note.startswith(("Here", "Separated")) for note in built().notes)


def test_data_that_the_paper_lacks_has_no_gap_unless_it_is_named():
    rows = results(dataset="features", backbone="identity", image_size=None)
    assert all(note.startswith("c2-ccp against c2") for note in built(rows).notes)
    assert built(rows).rows[0].cells[0].gap is None
    named = built(rows, paper_dataset="cub")
    assert named.rows[0].cells[0].gap == pytest.approx(0.0049)
    assert "Compared with the paper's results on CUB." in named.notes
    assert "Here given features, in the paper BN-Inception at 227 px." in named.notes


def test_methods_selected_on_the_test_classes_are_marked():
    rows = [replace(row, selected_on="test") if row.method == "c2" else row for row in results()]
    table = built(rows)
    assert [row.label for row in table.rows] == ["c2 *", "c2-ccp"]
    for text in (as_markdown(table), as_latex(table)):
        assert "selected on the test classes themselves" in text


def test_methods_are_compared_with_their_plain_loss_or_the_first():
    methods = ("c2", "c2-ccp", "ms", "ms-ccp-s", "triplet-xbm")
    assert [baseline_of(method, methods) for method in methods] == [None, "c2", "c2", "ms", "c2"]


def test_bold_is_what_is_best_beyond_chance():
    def gaps(*points):
        return [
            replace(
                EXAMPLE, method=method, fold=fold, value=0.2 + 0.01 * fold + (0.01 * gap if method == "c2-ccp" else 0)
            )
            for method in ("c2", "c2-ccp")
            for fold, gap in enumerate(points)
        ]

    clear, unclear, single = built(gaps(2.0, 2.5, 1.5)), built(gaps(2.0, -1.0, 1.0)), built(gaps(2.0))
    assert [table.rows[1].cells[0].is_bold for table in (clear, unclear, single)] == [True, False, False]
    assert [table.rows[1].cells[0].is_best for table in (clear, unclear, single)] == [True, True, True]
    note = "c2-ccp against c2, MAP@R (128-D, separated): "
    assert f"{note}+2.00 points, 95 % interval +0.76 to +3.24 (Student's t over 3 pairs): better." in clear.notes
    assert next(text for text in unclear.notes if text.startswith(note)).endswith(": no clear difference.")
    assert f"{note}+2.00 points in one pair of runs, which tells nothing about chance." in (single.notes)
    assert "| **" in as_markdown(clear)
    assert "**" not in as_markdown(unclear).split("n runs.")[1]
    (line,) = [one for one in table_values(clear) if one["method"] == "c2-ccp"]
    assert (line["baseline"], line["pairs"]) == ("c2", 3)
    assert line["difference"] == pytest.approx(0.02)
    assert line["difference_low"] == pytest.approx(0.0076, abs=1e-4)


def test_differences_survive_on_disk(tmp_path):
    table = built()
    write_table(tmp_path, table)
    assert read_table(tmp_path) == table


def test_a_first_method_without_results_leaves_the_others_to_be_compared():
    rows = [replace(row, method="ms") if row.method == "c2-ccp" else row for row in results()]
    table = built(rows, methods=("broken", "c2", "ms"))
    assert table.rows[2].cells[0].baseline == "c2"
    assert table.rows[2].cells[0].difference.mean == pytest.approx(0.02)
