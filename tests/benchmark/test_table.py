"""Results of a benchmark put into a table."""

from dataclasses import replace

import pytest
from support.made_up_results import built, results

from ccp_dml.benchmark.formats import as_latex, as_markdown
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
    assert built(rows).notes == []
    assert built(rows).rows[0].cells[0].gap is None
    named = built(rows, paper_dataset="cub")
    assert named.rows[0].cells[0].gap == pytest.approx(0.0049)
    assert "Compared with the paper's results on CUB." in named.notes
    assert "Here identity, in the paper BN-Inception at 227 px." in named.notes


def test_methods_selected_on_the_test_classes_are_marked():
    rows = [replace(row, selected_on="test") if row.method == "c2" else row for row in results()]
    table = built(rows)
    assert [row.label for row in table.rows] == ["c2 *", "c2-ccp"]
    for text in (as_markdown(table), as_latex(table)):
        assert "selected on the test classes themselves" in text
